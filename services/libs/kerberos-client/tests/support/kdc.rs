//! A KDC with its administration server on ephemeral ports, in a directory of its own: `krb5kdc` and `kadmind` of the Debian packages, no realm of the system.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kerberos_client::KerberosConfig;
use tempfile::TempDir;

/// Its realm.
pub const REALM: &str = "TEST.EXAMPLE";
/// Realm of a second one, for trust between the two.
pub const OTHER_REALM: &str = "OTHER.EXAMPLE";
/// Longer than any start takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A realm that `op1krbkeys/Test` administers for its cluster, and `sv1clusters` for the accounts of all. It ends with the value.
pub struct TestKdc {
    realm: &'static str,
    directory: TempDir,
    ports: [u16; 3],
    servers: Vec<Child>,
}

impl TestKdc {
    /// A new realm with both servers.
    pub fn start() -> Self {
        Self::start_realm(REALM)
    }

    /// A new realm of that name with both servers.
    pub fn start_realm(realm: &'static str) -> Self {
        // Ports that were free a moment ago. If another process takes one meanwhile, a server ends, and others are tried.
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let mut kdc = Self { realm, ports: free_ports(), directory, servers: Vec::new() };
            kdc.configure();
            if kdc.try_run() {
                kdc.create_administrator();
                return kdc;
            }
        }
        panic!("no KDC could be started");
    }

    /// How a service reaches it.
    pub fn config(&self) -> KerberosConfig {
        KerberosConfig {
            admin_principal: format!("op1krbkeys/Test@{}", self.realm),
            keytab_file: self.path("admin.keytab"),
            krb5_conf: Some(self.path("krb5.conf")),
            timeout_s: 60,
        }
    }

    /// The configuration of the control plane, which has rights on every cluster's accounts.
    pub fn config_of_control_plane(&self) -> KerberosConfig {
        let keytab_file = self.path("clusters.keytab");
        KerberosConfig { admin_principal: format!("sv1clusters@{}", self.realm), keytab_file, ..self.config() }
    }

    /// Ends both servers; the realm stays.
    pub fn stop(&mut self) {
        for mut server in self.servers.drain(..) {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Starts both servers again.
    pub fn run(&mut self) {
        assert!(self.try_run(), "the KDC does not start again");
    }

    /// Runs a command of `kadmin.local`, which needs no server; what it says.
    pub fn administer(&self, query: &str) -> String {
        let output = self.command("kadmin.local").args(["-q", query]).stdout(Stdio::piped()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Version of a principal's newest key; None: it is absent.
    pub fn key_version(&self, principal: &str) -> Option<u32> {
        self.field(principal, 8)
    }

    /// Whether a principal gets tickets; None: it is absent.
    pub fn is_enabled(&self, principal: &str) -> Option<bool> {
        self.field(principal, 7).map(|attributes| attributes & 0x40 == 0)
    }

    /// A number in what is said of a principal of its realm, or of another if that is named; None: it is absent.
    fn field(&self, principal: &str, field: usize) -> Option<u32> {
        let realm = if principal.contains('@') { String::new() } else { format!("@{}", self.realm) };
        let said = self.administer(&format!("getprinc -terse {principal}{realm}"));
        said.lines().find(|line| line.starts_with('"'))?.split('\t').nth(field)?.parse().ok()
    }

    /// Has a client get a ticket of its realm with a keytab, and with that one for a service of `other`; whether it got it.
    pub fn gets_ticket(&self, (client, keytab): (&str, &Path), other: &Self, service: &str) -> bool {
        let both = self.path("both.conf");
        let realms: String =
            [self, other].map(|kdc| format!(" {} = {{\n  kdc = 127.0.0.1:{}\n }}\n", kdc.realm, kdc.ports[0])).concat();
        let libdefaults = format!(
            "[libdefaults]\n default_realm = {}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n",
            self.realm
        );
        std::fs::write(&both, format!("{libdefaults}[realms]\n{realms}")).unwrap();
        let cache = self.path("both.cache");
        let got = |program: &str, arguments: &[&str]| {
            let mut command = self.command(program);
            command.env("KRB5_CONFIG", &both).env("KRB5CCNAME", &cache).args(arguments).status().unwrap().success()
        };
        let keytab = keytab.to_str().unwrap();
        got("kinit", &["-k", "-t", keytab, &format!("{client}@{}", self.realm)])
            && got("kvno", &[&format!("{service}@{}", other.realm)])
    }

    fn configure(&self) {
        let at = self.directory.path().display();
        let [kdc, admin, password] = self.ports;
        let realm = self.realm;
        let krb5 = format!(
            "[libdefaults]\n default_realm = {realm}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n rdns = false\n dns_canonicalize_hostname = false\n\
             [realms]\n {realm} = {{\n  kdc = 127.0.0.1:{kdc}\n  admin_server = 127.0.0.1:{admin}\n }}\n\
             [logging]\n kdc = FILE:{at}/kdc.log\n admin_server = FILE:{at}/kadmind.log\n default = FILE:{at}/default.log\n"
        );
        let servers = format!(
            "[realms]\n {realm} = {{\n  database_name = {at}/principal\n  acl_file = {at}/kadm5.acl\n  key_stash_file = {at}/stash\n\
             \x20 kdc_listen = 127.0.0.1:{kdc}\n  kdc_tcp_listen = 127.0.0.1:{kdc}\n  kadmind_listen = 127.0.0.1:{admin}\n  kpasswd_listen = 127.0.0.1:{password}\n\
             \x20 supported_enctypes = aes256-cts:normal aes128-cts:normal\n }}\n"
        );
        std::fs::write(self.path("krb5.conf"), krb5).unwrap();
        std::fs::write(self.path("kdc.conf"), servers).unwrap();
        // As at a site: second component is the cluster.
        let rights = [
            ["op1krbkeys/Test", "*/Test"],
            ["op1krbkeys/Test", "*/Test/*"],
            ["sv1clusters", "op1flux/*"],
            ["sv1clusters", "op1krbkeys/*"],
        ];
        let rights: String = rights.map(|[who, whom]| format!("{who}@{realm} * {whom}@{realm}\n")).concat();
        // Each trust by its name: `krbtgt/*` would be the key of all tickets, too.
        let trusts = [[REALM, OTHER_REALM], [OTHER_REALM, REALM]]
            .map(|[to, from]| format!("op1krbkeys/Test@{realm} * krbtgt/{to}@{from}\n"));
        let rights = [rights, trusts.concat()].concat();
        std::fs::write(self.path("kadm5.acl"), rights).unwrap();
        if !self.path("principal").exists() {
            let made = self.command("kdb5_util").args(["create", "-s", "-P", "master", "-r", realm]).output().unwrap();
            assert!(made.status.success(), "{made:?}");
        }
    }

    fn create_administrator(&self) {
        for (name, file) in [("op1krbkeys/Test", "admin.keytab"), ("sv1clusters", "clusters.keytab")] {
            self.administer(&format!("addprinc -randkey {name}"));
            self.administer(&format!("ktadd -k {} {name}", self.path(file).display()));
            assert!(self.path(file).exists());
        }
    }

    fn try_run(&mut self) -> bool {
        for arguments in [["krb5kdc", "-n"], ["kadmind", "-nofork"]] {
            let mut command = self.command(arguments[0]);
            self.servers.push(command.arg(arguments[1]).spawn().unwrap());
        }
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if self.servers.iter_mut().any(|server| server.try_wait().unwrap().is_some()) {
                self.stop();
                return false;
            }
            if self.ports[..2].iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the KDC does not listen: see {}", self.directory.path().display());
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn command(&self, program: &str) -> Command {
        // Servers live in /usr/sbin, which is not in every user's path.
        let sbin = Path::new("/usr/sbin").join(program);
        let mut command = Command::new(if sbin.exists() { sbin } else { PathBuf::from(program) });
        command.env("KRB5_CONFIG", self.path("krb5.conf")).env("KRB5_KDC_PROFILE", self.path("kdc.conf"));
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for TestKdc {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free_ports() -> [u16; 3] {
    // All three are bound at once, so that they differ.
    let listeners = [(); 3].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
