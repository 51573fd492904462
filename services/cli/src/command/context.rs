//! `sparkfleet context ...` and `sparkfleet login`.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use hyper::Uri;
use serde::Deserialize;
use serde_json::{Value, json};
use service_runtime::exit;
use zeroize::Zeroizing;

use crate::arguments::context::{ContextCommand, LoginArguments, SetArguments};
use crate::console_api::ConsoleApi;
use crate::context::{self, Context, Contexts, check_name, write_private};
use crate::output::{self, Table};
use crate::usage_error::{not_found, usage};

/// Bytes that are read of a token at most.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Carries out a context command.
///
/// # Errors
/// As documented for the exit codes.
pub fn run(command: ContextCommand) -> anyhow::Result<()> {
    run_in(command, &context::file()?)
}

fn run_in(command: ContextCommand, file: &Path) -> anyhow::Result<()> {
    let mut contexts = Contexts::load(file)?;
    let said = match command {
        ContextCommand::List { printing } => {
            let lines = || list(&contexts);
            return output::print(printing.output, lines, &json!(contexts));
        }
        ContextCommand::Show { name, printing } => {
            let name = name.or_else(|| contexts.current.clone());
            let name = name.ok_or_else(|| usage(anyhow!("no context is the current one; name one")))?;
            let context = contexts.get(&name)?;
            return output::print(
                printing.output,
                || shown(&name, context),
                &json!({ "name": name, "settings": context }),
            );
        }
        ContextCommand::Use { name } => {
            contexts.get(&name)?;
            contexts.current = Some(name.clone());
            format!("{name} is the current context")
        }
        ContextCommand::Set(arguments) => set(&mut contexts, *arguments)?,
        ContextCommand::Rename { name, new } => rename(&mut contexts, file, &name, &new)?,
        ContextCommand::Delete { name } => {
            let stored = is_stored(file, &name, contexts.get(&name)?);
            contexts.contexts.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.save(file)?;
            if stored {
                let token = token_file(file, &name);
                std::fs::remove_file(&token).with_context(|| format!("cannot remove {}", token.display()))?;
            }
            return output::print_text(&format!("{name} deleted"));
        }
    };
    contexts.save(file)?;
    output::print_text(&said)
}

fn list(contexts: &Contexts) -> Vec<String> {
    if contexts.contexts.is_empty() {
        return vec!["no contexts; `sparkfleet login URL` or `sparkfleet context set NAME` makes one".to_owned()];
    }
    let mut table = Table::new(&["", "CONTEXT", "BROKER", "CONSOLE", "ORGANISATION"]);
    for (name, context) in &contexts.contexts {
        let star = if contexts.current.as_ref() == Some(name) { "*" } else { "" };
        let text = |setting: &Option<String>| setting.clone().unwrap_or_default();
        let cells = [text(&context.broker), text(&context.console), text(&context.organisation)];
        table.row([star.to_owned(), name.clone()].into_iter().chain(cells));
    }
    table.lines()
}

fn shown(name: &str, context: &Context) -> Vec<String> {
    let mut table = Table::new(&["SETTING", "VALUE"]);
    for (setting, value) in context.settings() {
        if let Some(value) = value {
            table.row([setting, value]);
        }
    }
    let mut lines = vec![format!("context {name}")];
    lines.extend(if table.is_empty() { vec!["nothing is set".to_owned()] } else { table.lines() });
    lines
}

fn set(contexts: &mut Contexts, arguments: SetArguments) -> anyhow::Result<String> {
    let SetArguments { name, unset, make_current, .. } = &arguments;
    check_name(name)?;
    let done = if contexts.contexts.contains_key(name) { "changed" } else { "created" };
    let mut context = contexts.contexts.get(name).cloned().unwrap_or_default();
    for setting in unset {
        let names = context.settings().map(|(name, _)| name);
        let place = context.setting(&setting.replace('-', "_"));
        *place.ok_or_else(|| usage(not_found("setting", setting, names)))? = None;
    }
    let path = |path: &Option<PathBuf>| path.as_deref().map(absolute).transpose();
    let given = Context {
        broker: arguments.broker.clone(),
        protocol: arguments.protocol.clone(),
        organisation: arguments.organisation.clone(),
        username: arguments.username.clone(),
        password_file: path(&arguments.password_file)?,
        ca_file: path(&arguments.ca_file)?,
        cert_file: path(&arguments.cert_file)?,
        key_file: path(&arguments.key_file)?,
        host_id: arguments.host_id.clone(),
        console: arguments.console.as_deref().map(crate::console_api::address).transpose()?,
        api: None,
        token_file: path(&arguments.token_file)?,
        http_ca_file: path(&arguments.http_ca_file)?,
    };
    for (setting, value) in given.settings() {
        if let (Some(value), Some(place)) = (value, context.setting(setting)) {
            *place = Some(value.clone());
        }
    }
    if context.cert_file.is_some() != context.key_file.is_some() {
        return Err(usage(anyhow!("cert_file and key_file go together; {name} has one of them")));
    }
    contexts.contexts.insert(name.clone(), context);
    let is_first = contexts.contexts.len() == 1 && contexts.current.is_none();
    if *make_current || is_first {
        contexts.current = Some(name.clone());
    }
    let current = if contexts.current.as_ref() == Some(name) { ", the current context" } else { "" };
    Ok(format!("{name} {done}{current}"))
}

fn rename(contexts: &mut Contexts, file: &Path, name: &str, new: &str) -> anyhow::Result<String> {
    check_name(new)?;
    let mut context = contexts.get(name)?.clone();
    if contexts.contexts.contains_key(new) {
        return Err(usage(anyhow!("there is a context {new} already")));
    }
    if is_stored(file, name, &context) {
        let (from, to) = (token_file(file, name), token_file(file, new));
        std::fs::rename(&from, &to).with_context(|| format!("cannot rename {}", from.display()))?;
        context.token_file = Some(absolute(&to)?);
    }
    contexts.contexts.remove(name);
    contexts.contexts.insert(new.to_owned(), context);
    if contexts.current.as_deref() == Some(name) {
        contexts.current = Some(new.to_owned());
    }
    Ok(format!("{name} is {new} now"))
}

/// Whether the token of a context is one that `login` has stored.
fn is_stored(file: &Path, name: &str, context: &Context) -> bool {
    context.token_file.as_deref().map(Path::new) == Some(&token_file(file, name))
}

/// A path that means the same wherever a later command is run.
fn absolute(path: &Path) -> anyhow::Result<String> {
    let path = std::path::absolute(path).with_context(|| path.display().to_string()).map_err(usage)?;
    let text = path.to_str().ok_or_else(|| usage(anyhow!("{} is not UTF-8", path.display())))?;
    Ok(text.to_owned())
}

/// Where the token that was given to `login` is stored, beside the file of contexts.
fn token_file(file: &Path, name: &str) -> PathBuf {
    file.with_file_name("tokens").join(name)
}

/// What the console says of who asks.
#[derive(Debug, Deserialize)]
struct Session {
    organisation: String,
    user: Option<String>,
    role: String,
}

/// Tries a token at a console, and makes a context of both.
///
/// # Errors
/// As documented for the exit codes; with [`exit::REFUSED`] if the console does not know the token.
pub async fn login(arguments: LoginArguments) -> anyhow::Result<()> {
    login_in(arguments, &context::file()?, typed).await
}

/// `typed`: what comes on standard input.
async fn login_in(
    arguments: LoginArguments,
    file: &Path,
    typed: impl FnOnce() -> anyhow::Result<Zeroizing<String>>,
) -> anyhow::Result<()> {
    let LoginArguments { url, token_file: given, name, ca_file, broker, presentation } = arguments;
    let address = crate::console_api::address(&url)?;
    let name = name.map_or_else(|| name_of(&address), Ok)?;
    check_name(&name)?;
    let mut contexts = Contexts::load(file)?;
    let token = if given == Path::new("-") { Some(typed()?) } else { None };
    let stored = if token.is_some() { token_file(file, &name) } else { given };
    let token_text =
        token.as_ref().map_or_else(|| crate::input::read(&stored).map(Zeroizing::new), |token| Ok(token.clone()))?;
    let api = ConsoleApi::with_token(&address, ca_file.as_deref(), Some(&token_text), presentation.timeout)?;
    let session: Session = api.get("/api/v1/session", &[]).await?;
    let Some(user) = session.user else {
        let help = "`sparkfleet token create NAME --scope viewer` makes one";
        return Err(exit::with_code(
            exit::REFUSED,
            anyhow!("{address} does not know this token, or no longer; {help}"),
        ));
    };
    if let Some(token) = &token {
        write_private(&stored, token)?;
    }
    let mut context = contexts.contexts.remove(&name).unwrap_or_default();
    context.console = Some(address.clone());
    context.token_file = Some(absolute(&stored)?);
    context.http_ca_file = ca_file.as_deref().map(absolute).transpose()?.or(context.http_ca_file);
    context.organisation = Some(session.organisation.clone());
    context.broker = broker.or(context.broker);
    contexts.contexts.insert(name.clone(), context);
    contexts.current = Some(name.clone());
    contexts.save(file)?;
    let value: Value = json!({ "context": name, "console": address, "organisation": session.organisation,
        "user": user, "role": session.role });
    let line = format!(
        "{user} ({}) at {address}, organisation {}; {name} is the current context",
        session.role, session.organisation
    );
    output::print(presentation.output, || vec![line], &value)
}

/// The token on standard input.
fn typed() -> anyhow::Result<Zeroizing<String>> {
    let input = std::io::stdin().lock();
    if input.is_terminal() {
        let help = "pipe the token in, or name its file with --token-file";
        return Err(usage(anyhow!("standard input is a terminal, which shows what is typed: {help}")));
    }
    let mut text = Zeroizing::new(String::new());
    input.take(TOKEN_BYTES_MAX).read_to_string(&mut text).context("cannot read the token").map_err(usage)?;
    Ok(text)
}

/// The host of an address.
fn name_of(address: &str) -> anyhow::Result<String> {
    let uri: Uri = address.parse().with_context(|| address.to_owned()).map_err(usage)?;
    Ok(uri.host().unwrap_or_default().trim_matches(['[', ']']).replace(':', "_"))
}

#[cfg(test)]
mod tests;
