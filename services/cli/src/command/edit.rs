//! `sparkfleet cluster edit` and `config edit`: an entry of ConfigDB in the person's editor, written back if it is still the one that was read.
//!
//! What cannot be read or is refused is opened again with the reason above it. Nothing that was typed is lost: where the command ends without writing, it names the file.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, anyhow};
use configdb_contract::{RequestResult, WriteRequest};
use serde_json::{Value, json};
use service_runtime::exit;
use uuid::Uuid;

use crate::client::{Client, Scope, request_id, writer};
use crate::options::{Options, OutputForm};
use crate::output::{self, outcome};
use crate::usage_error::usage;

/// Where no variable names an editor.
const EDITOR: &str = "vi";

/// An entry that is edited.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What people call it.
    pub title: String,
    /// Its object.
    pub object: Uuid,
    /// Its application.
    pub slug: String,
    /// Its value.
    pub value: Value,
    /// Its ETag.
    pub etag: Uuid,
}

/// Edits the entry that `find` finds, and writes it.
///
/// # Errors
/// As documented for the exit codes; with [`exit::REFUSED`] where it was changed meanwhile.
pub async fn run(find: impl Fn(&Client) -> anyhow::Result<Entry>, options: &Options) -> anyhow::Result<()> {
    let editor = editor(|name| std::env::var_os(name));
    // A session that no one serves while the editor is open would fall behind: each step has its own.
    let client = Client::open(options, Scope::Config).await?;
    let entry = find(&client);
    client.close().await;
    let entry = entry?;
    let write = async |value: Value| {
        let mut client = Client::open(options, Scope::Config).await?;
        let request = WriteRequest::put(request_id(), entry.object).by(writer());
        let request = request.if_match(entry.slug.as_str(), Some(entry.etag)).entry(entry.slug.as_str(), value);
        let result = client.write(request).await;
        let now = client.fleet.config.entry(entry.object, &entry.slug).map(|entry| entry.etag);
        client.close().await;
        match result {
            Err(error) if exit::code_of(&error) == exit::REFUSED && now == Some(entry.etag) => Ok(Err(error)),
            Err(error) if exit::code_of(&error) == exit::REFUSED => Err(overtaken(&entry.title, now.is_some(), &error)),
            other => other.map(Ok),
        }
    };
    let form = options.presentation.output;
    let result = session(&entry, form, &editor, write).await?;
    let done = result
        .as_ref()
        .map_or("unchanged", |result| outcome(Some(entry.etag), result.etags.get(entry.slug.as_str()).copied()));
    let revision = result.as_ref().map(|result| result.revision);
    let line = match revision {
        Some(revision) => format!("{} {done}: revision {revision}", entry.title),
        None => format!("{} {done}", entry.title),
    };
    let value = json!({ "object": entry.object, "application": entry.slug, "change": done, "revision": revision });
    output::print(form, || vec![line], &value)
}

/// What to do where the entry is not the one that was opened.
fn overtaken(title: &str, exists: bool, error: &anyhow::Error) -> anyhow::Error {
    let text = if exists {
        format!("another writer has changed {title} meanwhile; edit it again, and take over what you typed ({error:#})")
    } else {
        format!("another writer has deleted {title} meanwhile; `sparkfleet config put` creates it again ({error:#})")
    };
    exit::with_code(exit::REFUSED, anyhow!(text))
}

/// An entry of an object, to be edited.
///
/// # Errors
/// With [`exit::NOT_FOUND`] if the object has none.
pub fn entry_of(client: &Client, object: Uuid, slug: &str, title: &str) -> anyhow::Result<Entry> {
    let error = || exit::with_code(exit::NOT_FOUND, anyhow!("{title} has no entry {slug}"));
    let entry = client.fleet.config.entry(object, slug).ok_or_else(error)?;
    let title = format!("{slug} of {title}");
    Ok(Entry { title, object, slug: slug.to_owned(), value: entry.value()?, etag: entry.etag })
}

/// The person's editor, with its arguments.
fn editor(variable: impl Fn(&str) -> Option<OsString>) -> OsString {
    let set = ["VISUAL", "EDITOR"].into_iter().filter_map(variable);
    set.into_iter().find(|value| !value.is_empty()).unwrap_or_else(|| EDITOR.into())
}

/// Opens the editor until the entry is written; None: it is to stay as it is. `write` yields the inner error where it is worth another try.
///
/// # Errors
/// Nothing was written; the error names the file with what was typed.
async fn session(
    entry: &Entry,
    form: OutputForm,
    editor: &OsStr,
    write: impl AsyncFn(Value) -> anyhow::Result<anyhow::Result<RequestResult>>,
) -> anyhow::Result<Option<RequestResult>> {
    let original = text_of(&entry.value, form)?;
    let mut file = Draft::create(form)?;
    let (mut text, mut problem): (String, Option<anyhow::Error>) = (original.clone(), None);
    loop {
        let edited = file.edit(&entry.title, &text, problem.as_ref(), editor)?;
        if edited.trim().is_empty() {
            return Ok(None);
        }
        if edited == text {
            // The same as before is what was read, or what could not be written.
            return match problem {
                None => Ok(None),
                Some(error) => Err(file.kept(error)),
            };
        }
        text = edited;
        problem = match parse(&text) {
            Ok(value) if value == entry.value => return Ok(None),
            Ok(value) => match write(value).await {
                Ok(Ok(result)) => return Ok(Some(result)),
                Ok(Err(refused)) => Some(refused),
                Err(error) => return Err(file.kept(error)),
            },
            Err(error) => Some(error),
        };
    }
}

fn text_of(value: &Value, form: OutputForm) -> anyhow::Result<String> {
    match form {
        OutputForm::Json => Ok(format!("{}\n", serde_json::to_string_pretty(value)?)),
        _ => output::yaml(value),
    }
}

/// A document of JSON or YAML.
fn parse(text: &str) -> anyhow::Result<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(_) => serde_saphyr::from_str(text).context("this is neither JSON nor YAML").map_err(usage),
    }
}

/// The file that the editor gets; it goes when it is not needed any more.
struct Draft {
    file: tempfile::NamedTempFile,
}

impl Draft {
    fn create(form: OutputForm) -> anyhow::Result<Self> {
        let suffix = if form == OutputForm::Json { ".json" } else { ".yaml" };
        let file = tempfile::Builder::new().prefix("sparkfleet-edit-").suffix(suffix).tempfile();
        Ok(Self { file: file.context("cannot make a file for the editor")? })
    }

    /// Lets the person edit the text; what it is then, without the lines that explain it.
    fn edit(
        &mut self,
        title: &str,
        text: &str,
        problem: Option<&anyhow::Error>,
        editor: &OsStr,
    ) -> anyhow::Result<String> {
        let path = self.file.path();
        let shown = format!("{}{text}", header(title, problem));
        let written = std::fs::File::create(path).and_then(|mut file| file.write_all(shown.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        open(editor, path)?;
        let edited = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(without_header(&edited))
    }

    /// The error, with the name of the file, which stays.
    fn kept(self, error: anyhow::Error) -> anyhow::Error {
        let code = exit::code_of(&error);
        let place = match self.file.keep() {
            Ok((_, path)) => format!("what you typed is in {}", path.display()),
            Err(error) => format!("what you typed could not be kept: {error}"),
        };
        exit::with_code(code, anyhow!("{error:#}; nothing was written, {place}"))
    }
}

/// Begins every line that explains.
const MARK: &str = "# ";

fn header(title: &str, problem: Option<&anyhow::Error>) -> String {
    let mut lines = vec![
        format!("{title}. Lines that begin with `#` above the document are left out."),
        "To leave everything as it is, close the editor without a change, or empty the file.".to_owned(),
    ];
    if let Some(problem) = problem {
        lines.push(String::new());
        lines.push("This was not written:".to_owned());
        lines.extend(format!("{problem:#}").lines().map(|line| format!("  {}", output::visible(line))));
    }
    lines.iter().map(|line| format!("{}\n", format!("{MARK}{line}").trim_end())).collect()
}

fn without_header(text: &str) -> String {
    let rest = text.lines().skip_while(|line| line.starts_with('#') || line.trim().is_empty());
    rest.map(|line| format!("{line}\n")).collect()
}

/// Runs the editor as a shell does, so that it can have arguments.
///
/// # Errors
/// With [`exit::USAGE`] if it cannot be run; if it fails.
fn open(editor: &OsStr, path: &Path) -> anyhow::Result<()> {
    let mut script = editor.to_owned();
    script.push(" \"$1\"");
    let status = Command::new("sh").arg("-c").arg(script).arg("sh").arg(path).status();
    let name = PathBuf::from(editor);
    let help = "the variables VISUAL and EDITOR name another editor";
    match status.context("cannot start sh")?.code() {
        Some(0) => Ok(()),
        Some(code) => {
            Err(usage(anyhow!("the editor {:?} ended with exit code {code}, nothing was written; {help}", name)))
        }
        None => Err(exit::with_code(exit::INTERRUPTED, anyhow!("the editor was killed; nothing was written"))),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use configdb_contract::Outcome;

    use super::*;

    fn entry() -> Entry {
        Entry {
            title: "EdgeCluster of Paint_Shop".to_owned(),
            object: Uuid::from_u128(1),
            slug: "EdgeCluster".to_owned(),
            value: json!({ "name": "Paint_Shop", "namespace": "fplus-edge" }),
            etag: Uuid::from_u128(7),
        }
    }

    fn result() -> RequestResult {
        let text = json!({ "id": "r", "object": Uuid::from_u128(1), "outcome": Outcome::Applied, "revision": 5 });
        serde_json::from_value(text).unwrap()
    }

    /// Edits with a script of the shell; what was written, and how it ended.
    async fn edited(
        script: &str,
        form: OutputForm,
        answers: &[&str],
    ) -> (Vec<Value>, anyhow::Result<Option<RequestResult>>) {
        let written = RefCell::new(Vec::new());
        let write = async |value: Value| {
            let at = written.borrow().len();
            written.borrow_mut().push(value);
            match answers.get(at).copied() {
                None | Some("") => Ok(Ok(result())),
                Some("gone") => Err(exit::with_code(exit::REFUSED, anyhow!("another writer was faster"))),
                Some(refused) => Ok(Err(exit::with_code(exit::REFUSED, anyhow!("{refused}")))),
            }
        };
        let ended = session(&entry(), form, OsStr::new(script), write).await;
        (written.into_inner(), ended)
    }

    /// The path in an error, whose file is removed; its text.
    fn typed(error: &anyhow::Error) -> String {
        let text = error.to_string();
        let path = text.split_once("what you typed is in ").unwrap().1;
        let typed = std::fs::read_to_string(path).unwrap();
        std::fs::remove_file(path).unwrap();
        typed
    }

    #[tokio::test]
    async fn what_was_changed_is_written_as_yaml_or_json() {
        for form in [OutputForm::Table, OutputForm::Yaml, OutputForm::Json] {
            let (written, ended) = edited("sed -i s/fplus-edge/edge/", form, &[]).await;
            assert_eq!(written, [json!({ "name": "Paint_Shop", "namespace": "edge" })], "{form:?}");
            assert_eq!(ended.unwrap().unwrap().revision, 5);
        }
    }

    #[tokio::test]
    async fn nothing_is_written_where_nothing_was_changed() {
        for script in ["true", ": >", "sed -i 's/name: Paint_Shop/name:   Paint_Shop/'", "sed -i '1i # a note'"] {
            let (written, ended) = edited(script, OutputForm::Yaml, &[]).await;
            assert!(written.is_empty() && ended.unwrap().is_none(), "{script}");
        }
    }

    #[tokio::test]
    async fn what_is_refused_is_opened_again_with_the_reason() {
        let script = "f() { if grep -q 'name: must' \"$1\"; then sed -i s/edge-1/edge-2/ \"$1\"; else sed -i s/fplus-edge/edge-1/ \"$1\"; fi; }; f";
        let (written, ended) = edited(script, OutputForm::Yaml, &["EdgeCluster/name: must be a name"]).await;
        let namespaces: Vec<&Value> = written.iter().map(|value| &value["namespace"]).collect();
        assert_eq!(namespaces, [&json!("edge-1"), &json!("edge-2")]);
        assert!(ended.unwrap().is_some());
    }

    #[tokio::test]
    async fn who_gives_up_finds_what_was_typed() {
        let (written, ended) =
            edited("sed -i s/fplus-edge/edge/", OutputForm::Yaml, &["EdgeCluster/namespace: no"]).await;
        let error = ended.unwrap_err();
        assert_eq!((written.len(), exit::code_of(&error)), (1, exit::REFUSED));
        assert!(error.to_string().starts_with("EdgeCluster/namespace: no; nothing was written"), "{error}");
        let text = typed(&error);
        assert!(text.contains("namespace: edge") && text.contains("# This was not written:"), "{text}");
    }

    #[tokio::test]
    async fn a_document_that_cannot_be_read_is_not_sent() {
        let (written, ended) = edited("sed -i 's/^name: .*/name: [/'", OutputForm::Yaml, &[]).await;
        let error = ended.unwrap_err();
        assert!(written.is_empty() && exit::code_of(&error) == exit::USAGE, "{error}");
        assert!(error.to_string().contains("neither JSON nor YAML"), "{error}");
        typed(&error);
    }

    #[tokio::test]
    async fn an_entry_that_was_changed_meanwhile_is_not_overwritten() {
        let (_, ended) = edited("sed -i s/fplus-edge/edge/", OutputForm::Yaml, &["gone"]).await;
        let error = ended.unwrap_err();
        assert!(error.to_string().starts_with("another writer was faster; nothing was written"), "{error}");
        assert!(typed(&error).contains("namespace: edge"));
    }

    #[test]
    fn who_was_overtaken_reads_what_to_do() {
        let error = anyhow!("EdgeCluster: there is ETag 8");
        let changed = overtaken("EdgeCluster of Paint_Shop", true, &error).to_string();
        assert!(changed.starts_with("another writer has changed EdgeCluster of Paint_Shop meanwhile; edit it again"));
        assert!(changed.ends_with("(EdgeCluster: there is ETag 8)"), "{changed}");
        let deleted = overtaken("EdgeCluster of Paint_Shop", false, &error);
        assert_eq!(exit::code_of(&deleted), exit::REFUSED);
        assert!(deleted.to_string().contains("`sparkfleet config put` creates it again"), "{deleted}");
    }

    #[tokio::test]
    async fn an_editor_that_fails_writes_nothing() {
        for (script, code) in
            [("false", exit::USAGE), ("/none/editor", exit::USAGE), ("kill -9 $$; true", exit::INTERRUPTED)]
        {
            let (written, ended) = edited(script, OutputForm::Yaml, &[]).await;
            assert!(written.is_empty(), "{script}");
            assert_eq!(exit::code_of(&ended.unwrap_err()), code, "{script}");
        }
    }

    #[test]
    fn the_editor_is_that_of_the_environment() {
        let of = |pairs: &[(&str, &str)]| {
            editor(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
        };
        assert_eq!(of(&[("EDITOR", "nano"), ("VISUAL", "code --wait")]), "code --wait");
        assert_eq!(of(&[("EDITOR", "nano"), ("VISUAL", "")]), "nano");
        assert_eq!(of(&[]), "vi");
    }
}
