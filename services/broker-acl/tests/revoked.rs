//! A certificate that is revoked on a real Mosquitto, with the generated files: it opens no session any more, and those that are open are cut as the guide says.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use broker_acl::{Broker, Site, configuration};
use configdb_schema::address::{ClusterName, Organisation};

use crate::wire::Server;

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);
const TOPIC: &str = "spBv1.0/ACME-Paint/NCMD/Robot";

struct Pki(tempfile::TempDir);

impl Pki {
    /// An authority, a server, two certificates of one cluster, and one of the control plane.
    fn new() -> Self {
        let pki = Self(tempfile::tempdir().unwrap());
        pki.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=CA -keyout ca.key -out ca.pem");
        for (file, name) in
            [("server", "localhost"), ("old", "ACME-Paint"), ("new", "ACME-Paint"), ("central", "ACME-Central")]
        {
            pki.openssl(&format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -addext subjectAltName=DNS:localhost -keyout {file}.key -out {file}.csr"
            ));
            pki.openssl(&format!("x509 -req -in {file}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy -out {file}.pem"));
        }
        let ca = "[ca]\ndefault_ca=a\n[a]\ndatabase=db.txt\ndefault_md=sha256\ndefault_crl_days=10\n";
        fs::write(pki.path("ca.cnf"), ca).unwrap();
        fs::write(pki.path("db.txt"), "").unwrap();
        pki.list();
        pki
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn openssl(&self, arguments: &str) {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn list(&self) {
        self.openssl("ca -gencrl -config ca.cnf -keyfile ca.key -cert ca.pem -out crl.pem");
    }

    fn revoke(&self, file: &str) {
        self.openssl(&format!("ca -revoke {file}.pem -config ca.cnf -keyfile ca.key -cert ca.pem"));
        self.list();
    }
}

struct Running {
    pki: Pki,
    port: u16,
    server: Server,
    reloads: usize,
}

/// One of Mosquitto's own programs, and what it prints.
struct Client(Child, PathBuf);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Client {
    fn received(&self) -> String {
        fs::read_to_string(&self.1).unwrap_or_default()
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The generated files with the paths of a test; the cluster is listed or not.
fn write_files(pki: &Pki, broker: Broker, with_cluster: bool, port: u16) {
    let clusters = if with_cluster { vec!["Paint", "Weld"] } else { vec!["Weld"] };
    let clusters: Vec<_> = clusters.into_iter().map(|name| ClusterName::new(name.to_owned()).unwrap()).collect();
    let site = Site::new(Organisation::new("ACME".to_owned()).unwrap(), clusters, vec![], vec![]).unwrap();
    let directory = pki.0.path().display().to_string();
    for file in configuration(broker, &site) {
        let text = file
            .text
            .replace("/etc/mosquitto/certs/sparkfleet-ca.pem", &format!("{directory}/ca.pem"))
            .replace("#crlfile /etc/mosquitto/certs/sparkfleet-crl.pem", &format!("crlfile {directory}/crl.pem"))
            .replace("/etc/mosquitto/certs", &directory)
            .replace("/etc/mosquitto/", &format!("{directory}/"))
            .replace("/var/lib/mosquitto/", &format!("{directory}/"))
            .replace("listener 8883", &format!("user root\nlog_dest file {directory}/log\nlistener {port} 127.0.0.1"));
        fs::write(pki.path(file.name), text).unwrap();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Running {
    fn start(pki: Pki, port: u16) -> Self {
        let server = Server::start(&pki.path("sparkfleet.conf"));
        until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { pki, port, server, reloads: 0 }
    }

    fn command(&self, program: &str, who: &str) -> Command {
        let mut command = Command::new(program);
        let file = |end: &str| self.pki.path(&format!("{who}.{end}"));
        command.args(["-h", "localhost", "-p"]).arg(self.port.to_string());
        command
            .arg("--cafile")
            .arg(self.pki.path("ca.pem"))
            .arg("--cert")
            .arg(file("pem"))
            .arg("--key")
            .arg(file("key"));
        command.stderr(Stdio::null());
        command
    }

    fn subscribe(&self, who: &str, id: &str) -> Client {
        let path = self.pki.path(&format!("{id}.received"));
        let mut command = self.command("mosquitto_sub", who);
        command.args(["-i", id, "-t", TOPIC]).stdout(fs::File::create(&path).unwrap());
        let client = Client(command.spawn().expect("mosquitto_sub"), path);
        // It receives when it is subscribed.
        until("a subscription", || {
            self.publish("hello");
            client.received().contains("hello")
        });
        client
    }

    fn publish(&self, text: &str) {
        let status = self.command("mosquitto_pub", "central").args(["-t", TOPIC, "-m", text]).status();
        assert!(status.unwrap().success());
    }

    /// Whether a client gets a session.
    fn is_admitted(&self, who: &str) -> bool {
        let mut command = self.command("mosquitto_pub", who);
        command.args(["-i", "late", "-t", "spBv1.0/ACME-Paint/NDATA/Robot", "-m", "x"]).stdout(Stdio::null());
        command.status().unwrap().success()
    }

    fn reload(&mut self) {
        let id = self.server.0.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
        self.reloads += 1;
        let (log, reloads) = (self.pki.path("log"), self.reloads);
        until("the server has read its files", || {
            fs::read_to_string(&log).is_ok_and(|text| text.matches("Reloading config").count() >= reloads)
        });
    }
}

#[test]
fn a_revoked_certificate_opens_no_session_and_leaving_its_cluster_out_of_the_access_list_silences_those_that_are_open()
{
    let (pki, port) = (Pki::new(), free_port());
    write_files(&pki, Broker::Mosquitto, true, port);
    let mut site = Running::start(pki, port);
    let stolen = site.subscribe("old", "stolen");
    site.pki.revoke("old");
    site.reload();
    assert!(!site.is_admitted("old") && site.is_admitted("new"));
    // The list is looked at when a session opens: the guide says so.
    site.publish("still");
    until("the open session receives", || stolen.received().contains("still"));
    write_files(&site.pki, Broker::Mosquitto, false, port);
    site.reload();
    site.publish("after");
    // The message that it must not get would have come before this one.
    write_files(&site.pki, Broker::Mosquitto, true, port);
    site.reload();
    site.publish("back");
    until("the open session receives again", || stolen.received().contains("back"));
    assert!(!stolen.received().contains("after"), "{}", stolen.received());
}

#[test]
fn with_dynamic_security_disabling_a_user_ends_its_sessions_and_only_certificates_that_count_come_back() {
    let (pki, port) = (Pki::new(), free_port());
    write_files(&pki, Broker::MosquittoDynamicSecurity, true, port);
    // The site's own administrator of the plugin.
    let path = pki.path("sparkfleet-dynamic-security.json");
    let mut document: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let control = "$CONTROL/dynamic-security/#";
    let rights: Vec<serde_json::Value> = ["publishClientSend", "publishClientReceive", "subscribePattern"]
        .map(|kind| serde_json::json!({"acltype": kind, "topic": control, "allow": true}))
        .to_vec();
    document["roles"].as_array_mut().unwrap().push(serde_json::json!({"rolename": "admin", "acls": rights}));
    let central = document["clients"].as_array_mut().unwrap().iter_mut().find(|one| one["username"] == "ACME-Central");
    central.unwrap()["roles"].as_array_mut().unwrap().push(serde_json::json!({"rolename": "admin"}));
    fs::write(&path, document.to_string()).unwrap();
    let mut site = Running::start(pki, port);
    let (stolen, own) = (site.subscribe("old", "stolen"), site.subscribe("new", "own"));
    site.pki.revoke("old");
    site.reload();
    for change in ["disableClient", "enableClient"] {
        let mut command = site.command("mosquitto_ctrl", "central");
        assert!(command.args(["dynsec", change, "ACME-Paint"]).stdout(Stdio::null()).status().unwrap().success());
    }
    until("the cluster is back", || {
        site.publish("after");
        own.received().contains("after")
    });
    assert!(!stolen.received().contains("after"), "{}", stolen.received());
}
