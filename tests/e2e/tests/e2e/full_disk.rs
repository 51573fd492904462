//! The disk of ConfigDB is full: writes are refused with the cause, everything can be read, also after a restart, and writes are accepted again when there is room.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use e2e::central_services::{ORGANISATION, free_port};
use e2e::cli::{Cli, Outcome};
use e2e::mosquitto::Mosquitto;
use e2e::process::Process;
use e2e::recorder::{Message, Recorder};
use e2e::{program, wait, wire};
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

    fn configdb(&self, broker: SocketAddr, http: SocketAddr, directory: &Path) -> Process {
        let file = directory.join("configdb.toml");
        let text = format!(
            "organisation = \"{ORGANISATION}\"\nstate_dir = \"{}\"\n[mqtt]\nservers = [\"mqtt://{broker}\"]\n[http]\nlisten = \"{http}\"\n",
            self.at.join("configdb").display()
        );
        fs::write(&file, text).unwrap();
        let entered = self.entered(&["configdb", "--config", file.to_str().unwrap()]);
        let arguments: Vec<&str> = entered.iter().map(String::as_str).collect();
        Process::start("configdb", Path::new("nsenter"), &arguments, directory)
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

struct Bench {
    cli: Cli,
    disk: Disk,
    configdb: Process,
    http: SocketAddr,
    broker: Mosquitto,
    recorder: Recorder,
    directory: TempDir,
}

impl Bench {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let broker = Mosquitto::start();
        let recorder = Recorder::start(broker.address()).await;
        let cli = Cli::new(&broker.url());
        let disk = Disk::mounted(directory.path()).await;
        let http = free_port();
        let configdb = disk.configdb(broker.address(), http, directory.path());
        Self { cli, disk, configdb, http, broker, recorder, directory }
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

    /// What ConfigDB publishes last for an operator.
    fn alert(&self, name: &str) -> Option<String> {
        let of_configdb = |message: &&Arc<Message>| message.topic.ends_with("/ConfigDB");
        let alert = |message: &Arc<Message>| {
            let text = wire::text(message, name);
            text.map(Some).or_else(|| wire::is_null(message, name).then_some(None))
        };
        self.recorder.messages().iter().rev().filter(of_configdb).find_map(alert).flatten()
    }

    async fn is_read_only(&self, expected: bool) {
        let shown = || (self.metric("configdb_read_only") == Some(f64::from(u8::from(expected)))).then_some(());
        wait::until("the metric of the full disk", shown, || self.configdb.tail()).await;
        for (name, alert) in [("Config/Alert", FULL), ("Disk/Alert", NO_ROOM)] {
            let published = || (self.alert(name).as_deref() == expected.then_some(alert)).then_some(());
            wait::until("the alert of the full disk", published, || format!("{name}: {:?}", self.alert(name))).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let mut bench = Bench::start().await;
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
