//! The disk of ConfigDB is full: writes are refused with the cause, everything can be read, also after a restart, and writes are accepted again when there is room.
//! On a Mosquitto that accepts everyone, and on one with client certificates and the rules of `sparkfleet acl generate`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use e2e::central_services::{ORGANISATION, free_port};
use e2e::cli::{Cli, Outcome};
use e2e::mosquitto::Mosquitto;
use e2e::process::Process;
use e2e::recorder::Message;
use e2e::secured_site::{self, files, with_shipped_acl};
use e2e::{program, wait, wire};
use sparkplug_mqtt::{ListenerEvent, MqttConfig};
use tempfile::TempDir;

const OVEN: &str = "c1000000-0000-4000-8000-0000000000f1";
const FULL: &str = "the disk is full: writes are refused; make room";
/// A hundredth of the disk.
const NO_ROOM: &str =
    "less than 81 KiB are free on the disk of its state directory; writes fail, or soon will: make room";
const DEVICE: &str = "18773d6d-a70d-443a-b29a-3f1583195290";

/// A small file system of its own, which is gone with the process that holds it.
struct Disk {
    holder: Process,
    at: PathBuf,
}

impl Disk {
    async fn mounted(directory: &Path) -> Self {
        let at = directory.join("disk");
        fs::create_dir(&at).unwrap();
        let script =
            format!("mount -t tmpfs -o size=8m tmpfs {0} && echo mounted && exec sleep infinity", at.display());
        // A user other than root may mount in a user namespace, where the system allows one.
        let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
        let own_user: &[&str] = if is_root { &[] } else { &["--user", "--map-root-user"] };
        let arguments = [own_user, &["--mount", "sh", "-c", &script]].concat();
        let holder = Process::start("disk", Path::new("unshare"), &arguments, directory);
        holder.says("mounted").await;
        Self { holder, at }
    }

    /// The same place, as this process reaches it.
    fn filling(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}/filling", self.holder.id(), self.at.display()))
    }

    fn fill(&self) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.filling()).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.filling()).unwrap();
    }

    /// `credentials` are variables of the environment.
    fn configdb(&self, url: &str, credentials: &[(String, String)], http: SocketAddr, directory: &Path) -> Process {
        let file = directory.join("configdb.toml");
        let text = format!(
            "organisation = \"{ORGANISATION}\"\nstate_dir = \"{}\"\n[mqtt]\nservers = [\"{url}\"]\n[http]\nlisten = \"{http}\"\n",
            self.at.join("configdb").display()
        );
        fs::write(&file, text).unwrap();
        let entered = self.entered(&["configdb", "--config", file.to_str().unwrap()]);
        let arguments: Vec<&str> = entered.iter().map(String::as_str).collect();
        let credentials: Vec<(&str, &str)> = credentials.iter().map(|(key, value)| (&**key, &**value)).collect();
        Process::with("configdb", Path::new("nsenter"), &arguments, &credentials, directory)
    }

    /// Arguments of `nsenter` for a command of the program where the disk is.
    fn entered(&self, command: &[&str]) -> Vec<String> {
        let namespaces = format!("/proc/{}/ns", self.holder.id());
        let mut all = vec![format!("--mount={namespaces}/mnt")];
        if fs::read_link("/proc/self/ns/user").ok() != fs::read_link(format!("{namespaces}/user")).ok() {
            all.extend([format!("--user={namespaces}/user"), "--preserve-credentials".to_owned()]);
        }
        all.extend(["--".to_owned(), program::sparkfleet().to_str().unwrap().to_owned()]);
        all.extend(command.iter().map(|&word| word.to_owned()));
        all
    }
}

/// What ConfigDB itself publishes, as a client with these settings receives it.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Message>>>);

impl Received {
    async fn over(mqtt: &MqttConfig) -> Self {
        let mut listener = secured_site::listener(mqtt, &["NBIRTH/ConfigDB", "NDATA/ConfigDB"]).await;
        let received = Self::default();
        let all = received.clone();
        tokio::spawn(async move {
            while let Some(event) = listener.recv().await {
                if let ListenerEvent::Message { topic, payload, .. } = event {
                    let payload = payload.to_vec();
                    let message = Message { at: Duration::ZERO, session: 0, topic, payload, retain: false };
                    all.0.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                }
            }
        });
        received
    }

    /// The last value of a text metric.
    fn last(&self, name: &str) -> Option<String> {
        let value = |message: &Message| {
            let text = wire::text(message, name);
            text.map(Some).or_else(|| wire::is_null(message, name).then_some(None))
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().find_map(value).flatten()
    }
}

struct Bench {
    cli: Cli,
    disk: Disk,
    configdb: Process,
    http: SocketAddr,
    broker: Mosquitto,
    received: Received,
    directory: TempDir,
}

impl Bench {
    async fn start() -> Self {
        let broker = Mosquitto::start();
        let cli = Cli::new(&broker.url());
        let mqtt = MqttConfig { servers: vec![broker.url()], ..MqttConfig::default() };
        Self::on(broker, cli, &mqtt, &[]).await
    }

    /// ConfigDB and the operator have certificates of their own.
    async fn start_secured() -> Self {
        let broker = with_shipped_acl("mosquitto", "sparkfleet.acl", "/etc/mosquitto/sparkfleet.acl").await;
        let operator = secured_site::mqtt(&broker, "ACME-Central-Operator");
        let cli = Cli::new(&operator.servers[0]);
        let cli = cli.with_environment(files("SPARKFLEET_", broker.directory(), "ACME-Central-Operator"));
        let credentials = files("SPARKFLEET__MQTT__", broker.directory(), "ACME-Central");
        Self::on(broker, cli, &operator, &credentials).await
    }

    async fn on(broker: Mosquitto, cli: Cli, mqtt: &MqttConfig, credentials: &[(String, String)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let received = Received::over(mqtt).await;
        let disk = Disk::mounted(directory.path()).await;
        let http = free_port();
        let configdb = disk.configdb(&mqtt.servers[0], credentials, http, directory.path());
        Self { cli, disk, configdb, http, broker, received, directory }
    }

    async fn write(&self, name: &str) -> Outcome {
        let arguments = ["config", "put", OVEN, "Info", "-", "--class", DEVICE];
        self.cli.run_with(&arguments, &format!("{{\"name\": \"{name}\"}}")).await
    }

    async fn name(&self) -> String {
        let info = self.cli.json(&["config", "get", OVEN, "Info"]).await;
        info["name"].as_str().unwrap().to_owned()
    }

    /// How many times the present name was written, as the history has it.
    async fn history(&self) -> usize {
        self.cli.json(&["config", "history", OVEN, "Info"]).await.as_array().unwrap().len()
    }

    /// A metric of the process that has no labels, or is named with them.
    fn metric(&self, name: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(self.http).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
        let mut page = String::new();
        stream.read_to_string(&mut page).ok()?;
        page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    }

    async fn is_read_only(&self, expected: bool) {
        let shown = || (self.metric("configdb_read_only") == Some(f64::from(u8::from(expected)))).then_some(());
        wait::until("the metric of the full disk", shown, || self.configdb.tail()).await;
        for (name, alert) in [("Config/Alert", FULL), ("Disk/Alert", NO_ROOM)] {
            let published = || (self.received.last(name).as_deref() == expected.then_some(alert)).then_some(());
            let shown = || format!("{name}: {:?}", self.received.last(name));
            wait::until("the alert of the full disk", published, shown).await;
        }
    }

    /// Everything can be read, and a write is refused with the cause, as often as it is asked for.
    async fn serves_reads_only(&self, name: &str, history: usize) {
        for _ in 0..2 {
            self.write("Refused").await.refused(5, "the disk is full; nothing was written");
            assert_eq!((self.name().await.as_str(), self.history().await), (name, history));
        }
        self.is_read_only(true).await;
    }
}

async fn a_full_disk_refuses_writes_and_serves_reads(mut bench: Bench) {
    assert_eq!(bench.write("First").await.code, 0, "{}", bench.configdb.tail());
    let free = format!("sparkfleet_disk_available_bytes{{node=\"{ORGANISATION}-Central/ConfigDB\"}}");
    assert!(bench.metric(&free).is_some_and(|free| free > 0.0));
    bench.disk.fill();
    bench.serves_reads_only("First", 1).await;

    // Killed, and stopped in order: it starts although the disk is full.
    bench.configdb.restart();
    bench.serves_reads_only("First", 1).await;
    bench.configdb.interrupt();
    assert!(bench.configdb.ended().await.success(), "{}", bench.configdb.tail());
    bench.configdb.restart();
    bench.serves_reads_only("First", 1).await;

    bench.disk.make_room();
    bench.is_read_only(false).await;
    let until = Instant::now() + wait::PATIENCE;
    while bench.write("Second").await.code != 0 {
        assert!(Instant::now() < until, "{}", bench.configdb.tail());
    }
    assert_eq!((bench.name().await.as_str(), bench.history().await), ("Second", 2));
    assert!(bench.configdb.is_running(), "it is the same process");
    let file = bench.directory.path().join("backup.sqlite");
    let state = bench.disk.at.join("configdb");
    let backup = ["config", "backup", file.to_str().unwrap(), "--state", state.to_str().unwrap()];
    let made = Command::new("nsenter").args(bench.disk.entered(&backup)).output().unwrap();
    assert!(made.status.success(), "others can read the store again: {made:?}");
    drop(bench.broker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    a_full_disk_refuses_writes_and_serves_reads(Bench::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_access_rules_a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    a_full_disk_refuses_writes_and_serves_reads(Bench::start_secured().await).await;
}
