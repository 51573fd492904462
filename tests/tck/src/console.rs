//! What the two programs have in common: how to reach the server, lines of standard input, and words in them.
#![allow(clippy::print_stdout, reason = "programs on the command line")]

pub mod value;

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use sparkplug::{DataType, Metric, Value};
use sparkplug_mqtt::{MqttConfig, Password, Protocol};
use tokio::sync::mpsc;

use crate::relay::Relay;

/// How to reach the MQTT server.
#[derive(Debug, clap::Args)]
pub struct Server {
    /// MQTT server, mqtt://host:1883, mqtts://host:8883, ws://host/path or wss://host/path; give several, and they are tried in turn
    #[arg(long = "server", value_name = "URL", default_value = "mqtt://127.0.0.1:1883")]
    servers: Vec<String>,
    /// Version of MQTT: 3.1.1 or 5
    #[arg(long, value_name = "VERSION", default_value = "3.1.1")]
    protocol: Protocol,
    /// User name for the server
    #[arg(long)]
    username: Option<String>,
    /// Password for the server
    #[arg(long, env = "MQTT_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// PEM file of the authorities that sign server certificates
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// PEM file of the client certificate and its chain
    #[arg(long, value_name = "FILE")]
    cert_file: Option<PathBuf>,
    /// PEM file of the private key of the client certificate
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Seconds between pings
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    keep_alive: u64,
    /// Reach the servers through relays of this program, which the order `close` needs; only mqtt://
    #[arg(long)]
    relay: bool,
    /// Milliseconds before a connection is tried again, the first time and at most
    #[arg(long, value_name = "FIRST..LONGEST", default_value = "500..30000", value_parser = backoff)]
    backoff: (Duration, Duration),
}

/// `500..30000`
fn backoff(text: &str) -> Result<(Duration, Duration), String> {
    let times = text.split_once("..").and_then(|(first, longest)| Some((first.parse().ok()?, longest.parse().ok()?)));
    match times {
        Some((first, longest)) if first <= longest => {
            Ok((Duration::from_millis(first), Duration::from_millis(longest)))
        }
        _ => Err("is not FIRST..LONGEST in milliseconds, 500..30000 for example".to_owned()),
    }
}

/// The relays of a program.
#[derive(Debug)]
pub struct Relays(Vec<Relay>);

impl Relays {
    /// The farewell that follows has no DISCONNECT.
    ///
    /// # Errors
    /// There are no relays.
    pub fn withhold_disconnect(&self) -> Result<(), String> {
        if self.0.is_empty() {
            return Err("needs --relay".to_owned());
        }
        self.0.iter().for_each(Relay::withhold_disconnect);
        Ok(())
    }
}

impl Server {
    /// First and longest wait before a new CONNECT.
    #[must_use]
    pub const fn backoff(&self) -> (Duration, Duration) {
        self.backoff
    }

    /// Starts the relays, if they are wanted; then the program's servers are these.
    ///
    /// # Errors
    /// [`Relay::start`].
    pub async fn relayed(&mut self) -> std::io::Result<Relays> {
        let mut relays = Vec::new();
        for server in self.servers.iter_mut().filter(|_| self.relay) {
            let relay = Relay::start(server).await?;
            *server = relay.url();
            relays.push(relay);
        }
        Ok(Relays(relays))
    }

    /// The same as the library has it.
    #[must_use]
    pub fn config(self) -> MqttConfig {
        MqttConfig {
            servers: self.servers,
            protocol: self.protocol,
            username: self.username,
            password: self.password.map(Password::from).unwrap_or_default(),
            ca_file: self.ca_file,
            cert_file: self.cert_file,
            key_file: self.key_file,
            keep_alive_s: self.keep_alive,
            ..MqttConfig::default()
        }
    }
}

/// Lines of standard input. They are read by a thread of their own: a runtime would wait for a read that never ends.
#[must_use]
pub fn lines() -> mpsc::Receiver<String> {
    // A user types slowly; a script waits.
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The words of a line. A word with spaces in it is written in double quotes.
#[derive(Debug)]
pub struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// Of a line.
    #[must_use]
    pub fn of(line: &'a str) -> Self {
        Self(line.trim())
    }

    /// The next word; `what` it should be is for the message when there is none.
    ///
    /// # Errors
    /// There is none, or a quotation does not end.
    pub fn next(&mut self, what: &str) -> Result<Cow<'a, str>, String> {
        if self.0.is_empty() {
            return Err(format!("{what} is missing"));
        }
        let mut quoted = serde_json::Deserializer::from_str(self.0).into_iter::<String>();
        if self.0.starts_with('"') {
            let word = match quoted.next() {
                Some(Ok(word)) => word,
                Some(Err(_)) | None => return Err(format!("{what}: the quotation does not end")),
            };
            self.0 = self.0[quoted.byte_offset()..].trim_start();
            return Ok(word.into());
        }
        let (word, rest) = self.0.split_once(char::is_whitespace).unwrap_or((self.0, ""));
        self.0 = rest.trim_start();
        Ok(word.into())
    }

    /// `NAME TYPE VALUE` up to the end of the line.
    ///
    /// # Errors
    /// What is missing, or the rule that the metric breaks.
    pub fn metric(mut self) -> Result<Metric, String> {
        let name = self.next("the name of the metric")?.into_owned();
        let (datatype, value) = self.value()?;
        let metric = Metric { value, ..Metric::null(name, datatype) };
        metric.check().map_err(|rule| format!("metric {:?}: {rule}", metric.name))?;
        Ok(metric)
    }

    /// `TYPE VALUE` up to the end of the line.
    ///
    /// # Errors
    /// What is missing, or why the value is none of that type.
    pub fn value(mut self) -> Result<(DataType, Option<Value>), String> {
        let datatype = value::datatype(&self.next("the datatype")?)?;
        Ok((datatype, value::parse(datatype, self.0)?))
    }
}

/// A word as [`Words`] reads it.
#[must_use]
pub fn word(text: &str) -> Cow<'_, str> {
    let plain = !text.is_empty() && !text.starts_with('"') && !text.contains(char::is_whitespace);
    if plain { text.into() } else { serde_json::Value::from(text).to_string().into() }
}

/// One line a metric, `NAME TYPE VALUE` and what else there is to say.
pub fn print_metrics<'a>(metrics: impl IntoIterator<Item = &'a Metric>) {
    for metric in metrics {
        let value = metric.value.as_ref().map_or(serde_json::Value::Null, value::to_json);
        let mut line = format!("  {} {:?} {value}", word(&metric.name), metric.datatype);
        if metric.is_historical {
            line.push_str(" (historical)");
        }
        for (key, property) in metric.properties.iter() {
            line.push_str(&format!(" {}={}", word(key), value::property_to_json(property)));
        }
        println!("{line}");
    }
}
