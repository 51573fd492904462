//! Contexts: named settings of where a fleet is and as whom it is reached, in one file of the user.
//!
//! A setting of a context is the default of the option of the same meaning. An option on the command line comes first; an environment variable comes before the current context, and after
//! one that the command line names. Files with secrets are named, never copied into the file; it and the tokens that `login` stores are for their owner alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use service_runtime::atomic_file::{self, OWNER_ONLY};
use service_runtime::exit;

use crate::options::{
    BROKER_VARIABLE, CONSOLE_CA_VARIABLE, CONSOLE_DEFAULT, CONSOLE_TOKEN_VARIABLE, CONSOLE_VARIABLE, CONTEXT_VARIABLE,
    ConsoleAccess,
};
use crate::usage_error::{not_found, usage};

/// Longest name of a context.
const NAME_CHARS_MAX: usize = 64;

/// Settings of one fleet. What is not set is left to options, environment and defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// MQTT server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broker: Option<String>,
    /// Version of MQTT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Organisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organisation: Option<String>,
    /// MQTT user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// File with the MQTT password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// PEM file of the authorities to trust, for mqtts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// PEM file of the own certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<String>,
    /// PEM file of the own private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// Host Application id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_id: Option<String>,
    /// Address of the web console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console: Option<String>,
    /// Address of an HTTP API that the cluster manager had; it is read, and not kept.
    #[serde(default, skip_serializing)]
    pub api: Option<String>,
    /// File with a token for the console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// PEM file of the authorities to trust, for https of the console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_ca_file: Option<String>,
}

impl Context {
    /// Every setting by name.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, &Option<String>); 12] {
        [
            ("broker", &self.broker),
            ("protocol", &self.protocol),
            ("organisation", &self.organisation),
            ("username", &self.username),
            ("password_file", &self.password_file),
            ("ca_file", &self.ca_file),
            ("cert_file", &self.cert_file),
            ("key_file", &self.key_file),
            ("host_id", &self.host_id),
            ("console", &self.console),
            ("token_file", &self.token_file),
            ("http_ca_file", &self.http_ca_file),
        ]
    }

    /// The setting of that name.
    pub fn setting(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            "broker" => &mut self.broker,
            "protocol" => &mut self.protocol,
            "organisation" => &mut self.organisation,
            "username" => &mut self.username,
            "password_file" => &mut self.password_file,
            "ca_file" => &mut self.ca_file,
            "cert_file" => &mut self.cert_file,
            "key_file" => &mut self.key_file,
            "host_id" => &mut self.host_id,
            "console" => &mut self.console,
            "token_file" => &mut self.token_file,
            "http_ca_file" => &mut self.http_ca_file,
            _ => return None,
        })
    }
}

/// Options that a setting is the default of, by id. Commands have those that they need.
fn options_of(setting: &str) -> &[&str] {
    match setting {
        "token_file" => &["console_token_file"],
        "http_ca_file" => &["console_ca_file"],
        "broker" => &["broker"],
        "protocol" => &["protocol"],
        "organisation" => &["organisation"],
        "username" => &["username"],
        "password_file" => &["password_file"],
        "ca_file" => &["ca_file"],
        "cert_file" => &["cert_file"],
        "key_file" => &["key_file"],
        "host_id" => &["host_id"],
        "console" => &["console"],
        _ => &[],
    }
}

/// All contexts of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// Name of the one that is used where none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// By name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

impl Contexts {
    /// What the file holds; nothing if there is none.
    ///
    /// # Errors
    /// With [`exit::CONFIG`], naming file and place: it cannot be read, or is not a file of contexts.
    pub fn load(file: &Path) -> anyhow::Result<Self> {
        let config = |error: anyhow::Error| exit::with_code(exit::CONFIG, error);
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                return Err(config(anyhow::Error::new(error).context(format!("cannot read {}", file.display()))));
            }
        };
        toml::from_str(&text).with_context(|| format!("{} is not a file of contexts", file.display())).map_err(config)
    }

    /// Writes the file, for its owner alone; the one before stays if that fails.
    ///
    /// # Errors
    /// With [`exit::CONFIG`] if it cannot be written.
    pub fn save(&self, file: &Path) -> anyhow::Result<()> {
        let text = toml::to_string_pretty(self).context("contexts cannot be written as TOML")?;
        write_private(file, &text)
    }

    /// The context of that name.
    ///
    /// # Errors
    /// With [`exit::NOT_FOUND`], naming those that there are.
    pub fn get(&self, name: &str) -> anyhow::Result<&Context> {
        self.contexts.get(name).ok_or_else(|| not_found("context", name, self.contexts.keys()))
    }
}

/// Writes a file that its owner alone may read, in a directory that others cannot enter.
///
/// # Errors
/// With [`exit::CONFIG`], naming the file.
pub fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let directory = atomic_file::directory_of(file);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(anyhow::Error::new)
        .and_then(|()| Ok(atomic_file::write(file, text.as_bytes(), Some(OWNER_ONLY))?))
        .with_context(|| format!("cannot write {}", file.display()))
        .map_err(|error| exit::with_code(exit::CONFIG, error))
}

/// Checks the name of a context: it is also the name of a file.
///
/// # Errors
/// With [`exit::USAGE`] and the rule.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let fits = !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.starts_with(['.', '-']);
    if fits && name.chars().all(is_good) {
        return Ok(());
    }
    let rule = "has letters, digits, `.`, `_` and `-`, does not begin with `.` or `-`, and is not longer than 64";
    Err(usage(anyhow!("the name of a context {rule}; {name:?} is not")))
}

/// The directory of the user's settings: `$XDG_CONFIG_HOME/sparkfleet`, or `~/.config/sparkfleet`. None: the environment names no home.
#[must_use]
pub fn directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(base.join("sparkfleet"))
}

/// The file of contexts.
///
/// # Errors
/// With [`exit::CONFIG`] where the environment names no home.
pub fn file() -> anyhow::Result<PathBuf> {
    let directory = directory(|name| std::env::var_os(name));
    let error = || exit::with_code(exit::CONFIG, anyhow!("HOME or XDG_CONFIG_HOME must name a directory for contexts"));
    Ok(directory.ok_or_else(error)?.join("contexts.toml"))
}

/// The context that a command line is read in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chosen {
    context: Context,
    /// The command line names it, so that it comes before the environment.
    is_named: bool,
}

/// The value of an option among the words of a command line.
fn value_of(option: &str, words: &[OsString]) -> Option<String> {
    let words = words.iter().take_while(|word| *word != "--").map(|word| word.to_str().unwrap_or_default());
    let words: Vec<&str> = words.collect();
    let after = |at: usize| words.get(at + 1).map(|word| (*word).to_owned());
    let found = words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(option) {
        Some("") => after(at),
        Some(rest) => rest.strip_prefix('=').map(str::to_owned),
        None => None,
    });
    found.filter(|name| !name.is_empty())
}

fn chosen(contexts: &Contexts, words: &[OsString], of_environment: Option<&str>) -> anyhow::Result<Option<Chosen>> {
    let named = value_of("--context", words);
    let name = named.as_deref().or(of_environment).or(contexts.current.as_deref());
    let context = name.map(|name| contexts.get(name).cloned()).transpose()?;
    Ok(context.map(|context| Chosen { context, is_named: named.is_some() }))
}

/// A console, and how it is asked.
#[derive(Debug, Clone)]
pub struct ConsoleOfContext {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub address: String,
    /// As whom.
    pub access: ConsoleAccess,
}

/// The console that a command line with these words means, and the names of all contexts. It need not be a whole command line: a user is writing it.
#[must_use]
pub fn for_completion(words: &[OsString]) -> (Option<ConsoleOfContext>, Vec<String>) {
    let Ok(contexts) = file().and_then(|file| Contexts::load(&file)) else { return (None, Vec::new()) };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    (console_of(&contexts, words, variable), contexts.contexts.into_keys().collect())
}

fn console_of(
    contexts: &Contexts,
    words: &[OsString],
    variable: impl Fn(&str) -> Option<String>,
) -> Option<ConsoleOfContext> {
    let chosen = chosen(contexts, words, variable(CONTEXT_VARIABLE).as_deref()).ok()?;
    let setting = |option: &str, name: &str, of_context: fn(&Context) -> &Option<String>| {
        let own = chosen.as_ref().and_then(|chosen| of_context(&chosen.context).clone());
        let is_named = chosen.as_ref().is_some_and(|chosen| chosen.is_named);
        let of_environment = || variable(name);
        let rest = if is_named { own.or_else(of_environment) } else { of_environment().or(own) };
        value_of(option, words).or(rest)
    };
    let address = setting("--console", CONSOLE_VARIABLE, |context| &context.console);
    // Who names neither a context nor a broker means the factory of `sparkfleet up`.
    let is_default = chosen.is_none() && value_of("--broker", words).is_none() && variable(BROKER_VARIABLE).is_none();
    let address = address.or_else(|| is_default.then(|| CONSOLE_DEFAULT.to_owned()))?;
    let token_file = setting("--console-token-file", CONSOLE_TOKEN_VARIABLE, |context| &context.token_file);
    let ca_file = setting("--console-ca-file", CONSOLE_CA_VARIABLE, |context| &context.http_ca_file);
    let access = ConsoleAccess { token_file: token_file.map(PathBuf::from), ca_file: ca_file.map(PathBuf::from) };
    Some(ConsoleOfContext { address, access })
}

/// A command line as clap knows it, with the settings of a context as defaults of each command that takes `--context`.
fn with_defaults(command: clap::Command, chosen: &Chosen) -> clap::Command {
    let below: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = below
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |below| with_defaults(below, chosen)));
    let has = |command: &clap::Command, id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
    if !has(&command, "context") {
        return command;
    }
    let set = chosen.context.settings().into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let options = set.flat_map(|(name, value)| options_of(name).iter().map(move |option| (*option, value)));
    options.fold(command, |command, (option, value)| {
        if !has(&command, option) {
            return command;
        }
        // clap keeps defaults for as long as the process lives; a process reads its command line once.
        let value: &'static str = Box::leak(value.to_owned().into_boxed_str());
        command.mut_arg(option, |argument| {
            let argument = if chosen.is_named { argument.env(None::<&'static str>) } else { argument };
            argument.required(false).default_value(value)
        })
    })
}

/// Whether a command that takes `--context` is read.
fn takes_context(command: &clap::Command, matches: &clap::ArgMatches) -> bool {
    let own = command.get_arguments().any(|argument| argument.get_id() == "context");
    let below = matches.subcommand().and_then(|(name, below)| Some((command.find_subcommand(name)?, below)));
    own || below.is_some_and(|(command, matches)| takes_context(command, matches))
}

/// Reads a command line in the context that it, the environment or the user's file of contexts names. `read` is clap's.
///
/// # Errors
/// With [`exit::NOT_FOUND`] if there is no such context, [`exit::CONFIG`] if the file cannot be read, and the command needs it.
pub fn read<E>(
    command: clap::Command,
    words: Vec<OsString>,
    read: impl Fn(clap::Command, Vec<OsString>) -> Result<clap::ArgMatches, E>,
) -> anyhow::Result<Result<clap::ArgMatches, E>> {
    let of_environment = std::env::var(CONTEXT_VARIABLE).ok().filter(|name| !name.is_empty());
    read_with(file().ok().as_deref(), of_environment.as_deref(), command, words, read)
}

fn read_with<E>(
    file: Option<&Path>,
    of_environment: Option<&str>,
    command: clap::Command,
    words: Vec<OsString>,
    read: impl Fn(clap::Command, Vec<OsString>) -> Result<clap::ArgMatches, E>,
) -> anyhow::Result<Result<clap::ArgMatches, E>> {
    let contexts = file.map_or_else(|| Ok(Contexts::default()), Contexts::load);
    let chosen = contexts.and_then(|contexts| chosen(&contexts, &words, of_environment));
    match chosen {
        Ok(Some(chosen)) => Ok(read(with_defaults(command, &chosen), words)),
        Ok(None) => Ok(read(command, words)),
        // Services, `up`, and the commands that mend the file do without.
        Err(error) => match read(command.clone(), words) {
            Ok(matches) if takes_context(&command, &matches) => Err(error),
            other => Ok(other),
        },
    }
}

#[cfg(test)]
mod tests;
