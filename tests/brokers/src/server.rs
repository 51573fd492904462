//! The MQTT servers: what starts them, in which version, and what they speak.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use e2e::process::Process;
use e2e::{port, wait};
use sparkplug_mqtt::Protocol;
use tempfile::TempDir;

use crate::session;

/// A server that can be tried.
#[derive(Debug)]
pub struct Server {
    /// How it is called on the command line.
    pub name: &'static str,
    /// How it is called in the table.
    pub title: &'static str,
    /// What its configuration has to say beside that it lets clients in.
    pub needs: &'static str,
    /// Steps that its own fault makes fail with MQTT 3.1.1, and the fault.
    pub fault: Option<(&'static [&'static str], &'static str)>,
    v5: bool,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Mosquitto,
    RabbitMq,
    /// A folder with `pom.xml` and `Broker.java`; the group of the artifact whose version counts.
    Java(&'static str),
    Node,
    Go,
    Embedded,
}

/// All of them.
pub const SERVERS: [Server; 7] = [
    Server { name: "mosquitto", title: "Mosquitto", needs: "", fault: None, v5: true, kind: Kind::Mosquitto },
    Server {
        name: "rabbitmq",
        title: "RabbitMQ",
        needs: "`mqtt.sparkplug = true`",
        fault: Some((&[session::STATE_IS_RETAINED], "all but retained STATE: it arrives on `spBv1/0/STATE/...`")),
        v5: false,
        kind: Kind::RabbitMq,
    },
    Server {
        name: "hivemq",
        title: "HiveMQ CE",
        needs: "",
        fault: None,
        v5: true,
        kind: Kind::Java("hivemq-community-edition-embedded"),
    },
    Server {
        name: "artemis",
        title: "ActiveMQ Artemis",
        needs: "MQTT 5: with 3.1.1 one of the filters of a new session may stay silent",
        // With 3.1.1 a command waited in vain in 5 of 32 factories with 2.38 to 2.50, while a recorder beside it received the births. Not so in 25 with the version that is tried: one
        // that fails is a failure, and is named with its step.
        fault: None,
        v5: true,
        kind: Kind::Java("artemis-server"),
    },
    Server { name: "aedes", title: "aedes", needs: "", fault: None, v5: false, kind: Kind::Node },
    Server { name: "mochi", title: "mochi", needs: "", fault: None, v5: true, kind: Kind::Go },
    Server {
        name: "embedded",
        title: "embedded in `sparkfleet up`",
        needs: "",
        fault: None,
        v5: true,
        kind: Kind::Embedded,
    },
];

/// A server that runs; killed when dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    process: Option<Process>,
    /// Port of that daemon.
    finder: Option<u16>,
    _embedded: Option<sparkfleet_up::broker::Broker>,
    _directory: TempDir,
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // RabbitMQ starts a daemon by which nodes find each other. It ends only when it is asked to, after the last node has ended.
        if let (Some(process), Some(finder)) = (&mut self.process, self.finder) {
            process.kill();
            let _ = Command::new("epmd").args(["-port", &finder.to_string(), "-kill"]).output();
        }
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

impl Server {
    /// Whether it speaks this version of MQTT.
    #[must_use]
    pub const fn speaks(&self, protocol: Protocol) -> bool {
        !matches!(protocol, Protocol::V5) || self.v5
    }

    /// The version that is tried.
    ///
    /// # Errors
    /// It cannot be found out.
    pub fn version(&self) -> anyhow::Result<String> {
        let text = |path: PathBuf| std::fs::read_to_string(&path).with_context(|| path.display().to_string());
        let between = |text: &str, before: &str, after: &str| -> Option<String> {
            Some(text.split_once(before)?.1.split_once(after)?.0.trim().to_owned())
        };
        let version = match self.kind {
            Kind::Mosquitto => package("mosquitto"),
            Kind::RabbitMq => package("rabbitmq-server"),
            Kind::Java(artifact) => {
                let pom = text(folder(self.name).join("pom.xml"))?;
                let dependency = pom.split_once(&format!("<artifactId>{artifact}</artifactId>"));
                dependency.and_then(|(_, rest)| between(rest, "<version>", "</version>"))
            }
            Kind::Node => between(&text(folder("aedes/package.json"))?, "\"aedes\": \"", "\""),
            Kind::Go => between(&text(folder("mochi/go.mod"))?, "server/v2 v", "\n"),
            Kind::Embedded => between(&text(folder("../../Cargo.lock"))?, "name = \"mqtt5\"\nversion = \"", "\"")
                .map(|version| format!("mqtt5 {version}")),
        };
        version.with_context(|| format!("the version of {}", self.name))
    }

    /// Starts it on a free port of loopback, with nothing kept from before; returns when it listens.
    ///
    /// # Panics
    /// It cannot be started; `make brokers` installs what is missing.
    pub async fn start(&self) -> Running {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let address = port::free();
        if matches!(self.kind, Kind::Embedded) {
            let config = sparkfleet_up::broker::BrokerConfig {
                listen: address,
                ..sparkfleet_up::broker::BrokerConfig::default()
            };
            let broker = sparkfleet_up::broker::Broker::start(config).await.expect("the embedded broker starts");
            return Running { address, process: None, finder: None, _embedded: Some(broker), _directory: directory };
        }
        let finder = matches!(self.kind, Kind::RabbitMq).then(|| port::free().port());
        let mut process = self.process(address, finder.unwrap_or_default(), directory.path());
        let listens = || std::net::TcpStream::connect(address).ok().map(drop);
        let name = self.name;
        wait::until(
            &format!("{name} to listen on {address}"),
            || {
                assert!(process.is_running(), "{name} has ended\n{}", process.tail());
                listens()
            },
            || name.to_owned(),
        )
        .await;
        Running { address, process: Some(process), finder, _embedded: None, _directory: directory }
    }

    fn process(&self, address: SocketAddr, finder: u16, directory: &Path) -> Process {
        let (port, at) = (address.port().to_string(), directory.display().to_string());
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("the directory can be written");
            path.display().to_string()
        };
        match self.kind {
            Kind::Mosquitto => {
                let text =
                    format!("user root\nlistener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n");
                let config = write("mosquitto.conf", &text);
                Process::start(self.name, Path::new("/usr/sbin/mosquitto"), &["-c", &config], directory)
            }
            Kind::RabbitMq => {
                let text = format!(
                    "listeners.tcp = none\nmqtt.listeners.tcp.1 = 127.0.0.1:{port}\nmqtt.allow_anonymous = true\n\
                     mqtt.default_user = guest\nmqtt.default_pass = guest\nmqtt.sparkplug = true\n"
                );
                let config = write("rabbitmq.conf", &text);
                let plugins = write("enabled_plugins", "[rabbitmq_mqtt].");
                let (node, distribution) = (format!("sparkfleet{port}@localhost"), port::free());
                let (mnesia, logs) = (format!("{at}/mnesia"), format!("{at}/log"));
                let (distribution, finder) = (distribution.port().to_string(), finder.to_string());
                let environment = [
                    ("RABBITMQ_NODENAME", node.as_str()),
                    ("RABBITMQ_DIST_PORT", &distribution),
                    ("RABBITMQ_MNESIA_BASE", &mnesia),
                    ("RABBITMQ_LOG_BASE", &logs),
                    ("RABBITMQ_CONFIG_FILE", &config),
                    ("RABBITMQ_ENABLED_PLUGINS_FILE", &plugins),
                    ("HOME", &at),
                    // The script becomes the server, which ends with it; otherwise it would be a child that outlives it.
                    ("RABBITMQ_ALLOW_INPUT", "1"),
                    ("RABBITMQ_SERVER_START_ARGS", "-noinput"),
                    ("ERL_EPMD_PORT", &finder),
                ];
                // What a crash leaves goes into its own directory.
                let run = "cd \"$0\" && exec /usr/lib/rabbitmq/bin/rabbitmq-server";
                Process::with(self.name, Path::new("sh"), &["-c", run, &at], &environment, directory)
            }
            Kind::Java(_) => {
                let libraries = format!("{}/*", libraries(self.name).display());
                let source = folder(self.name).join("Broker.java").display().to_string();
                Process::start(self.name, Path::new("java"), &["-cp", &libraries, &source, &port, &at], directory)
            }
            Kind::Node => {
                let source = folder("aedes/broker.mjs").display().to_string();
                Process::start(self.name, Path::new("node"), &[&source, &port], directory)
            }
            Kind::Go => Process::start(self.name, &libraries("mochi").join("mochi"), &[&port], directory),
            Kind::Embedded => unreachable!("it does not run as a process"),
        }
    }
}

/// Where `make brokers` puts what it gets and builds for a server.
fn libraries(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder("../../target"), PathBuf::from);
    target.join("brokers").join(name)
}

/// The version of a Debian package that is installed.
fn package(name: &str) -> Option<String> {
    let output = Command::new("dpkg-query").args(["--show", "--showformat=${Version}", name]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
