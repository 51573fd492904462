//! Completion as shells do it: the script that the program prints, read by the shell itself, with a console that has hostile names.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_sparkfleet");

/// A console with objects of such names, beside an executable `sparkfleet` and a context that names the console.
struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new(names: &[&str]) -> Self {
        let objects: Vec<_> = names.iter().map(|name| json!({ "key": name, "name": name, "deleted": false })).collect();
        let body = json!({ "rev": 1, "at": 1, "rows": objects }).to_string();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let console = format!("http://{}", listener.local_addr().unwrap());
        // It ends with the test's process.
        std::thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap(), &body)));
        let home = Self { directory: tempfile::tempdir().unwrap() };
        let settings = home.path().join(".config/sparkfleet");
        std::fs::create_dir_all(&settings).unwrap();
        std::fs::write(
            settings.join("contexts.toml"),
            format!("current = \"t\"\n[contexts.t]\nconsole = \"{console}\"\n"),
        )
        .unwrap();
        std::fs::create_dir(home.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(PROGRAM, home.path().join("bin/sparkfleet")).unwrap();
        std::fs::create_dir_all(home.path().join("work/folder")).unwrap();
        std::fs::write(home.path().join("work/a file.yaml"), "").unwrap();
        std::fs::write(home.path().join("work/$(touch hacked).yaml"), "").unwrap();
        home
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What a shell prints that runs a script in a folder with files.
    fn run(&self, shell: &str, options: &[&str], script: &str) -> String {
        let path = format!("{}:{}", self.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(shell);
        command.args(options).args(["-c", script]).current_dir(self.path().join("work")).stdin(Stdio::null());
        command.env_clear().env("PATH", path).env("HOME", self.path()).env("TERM", "dumb");
        let output = command.output().unwrap();
        assert!(!self.path().join("work/hacked").exists(), "a name was carried out");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.is_empty(), "{shell}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What bash has for the last of its words; its `COMP_WORDS`, as bash takes a line apart.
    fn bash(&self, words: &[&str], last: &str) -> Vec<String> {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let script = format!(
            "source <(sparkfleet completions bash)\nCOMP_WORDS=({words})\nCOMP_CWORD={at}\n_sparkfleet sparkfleet '{last}' ''\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words = quoted.join(" "),
            at = words.len() - 1,
        );
        self.run("bash", &["--norc", "--noprofile"], &script)
            .lines()
            .map(str::to_owned)
            .filter(|line| !line.is_empty())
            .collect()
    }
}

fn answer(stream: TcpStream, body: &str) {
    let mut lines = BufReader::new(&stream).lines();
    let request = lines.next().unwrap().unwrap();
    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
    assert!(request.starts_with("GET /api/v1/objects "), "{request}");
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    (&stream).write_all(answer.as_bytes()).unwrap();
}

#[test]
fn bash_completes_commands_options_files_and_names_of_the_fleet() {
    let home = Home::new(&["Body_Shop", "Edge agent", "Edge_2"]);
    assert_eq!(home.bash(&["sparkfleet", "clus"], "clus"), ["cluster", "cluster-manager"]);
    assert_eq!(home.bash(&["sparkfleet", "config", "get", ""], ""), ["Body_Shop", r"Edge\ agent", "Edge_2"]);
    assert_eq!(home.bash(&["sparkfleet", "config", "get", r"Edge\ a"], r"Edge\ a"), [r"Edge\ agent"]);
    assert_eq!(home.bash(&["sparkfleet", "config", "get", "\"Ed"], "Ed"), ["Edge_2"], "what fits between quotes");
    assert_eq!(home.bash(&["sparkfleet", "config", "list", "--output", "=", "j"], "j"), ["json"]);
    assert_eq!(
        home.bash(&["sparkfleet", "config", "list", "--output", "="], ""),
        ["table", "wide", "name", "json", "yaml"]
    );
    let files = home.bash(&["sparkfleet", "config", "load", ""], "");
    assert_eq!(files, [r"\$\(touch\ hacked\).yaml", r"a\ file.yaml", "folder/"]);
    // The console is that of the line, also where bash has taken its address apart.
    let away = ["sparkfleet", "config", "get", "--console", "http", ":", "//127.0.0.1", ":", "1", "B"];
    assert_eq!(home.bash(&away, "B"), [""; 0]);
}

#[test]
fn a_name_does_nothing_to_bash_and_its_terminal() {
    let home = Home::new(&[
        "$(touch hacked)",
        "`touch hacked`",
        "a;touch hacked",
        "*",
        "a\nb",
        "e\u{1b}[31m",
        "r\u{202e}l",
        "-rf",
        "x\u{b}y",
    ]);
    let found = home.bash(&["sparkfleet", "config", "get", ""], "");
    assert_eq!(found, [r"\$\(touch\ hacked\)", r"\*", r"\`touch\ hacked\`", r"a\;touch\ hacked"]);
    // bash reads again what it has inserted: it is the name.
    let script = format!("printf '<%s>' {}", found.join(" "));
    assert_eq!(home.run("bash", &["--norc"], &script), "<$(touch hacked)><*><`touch hacked`><a;touch hacked>");
}

#[test]
fn a_console_or_a_program_that_is_not_there_leaves_the_line_as_it_is() {
    let home = Home::new(&["Body_Shop"]);
    let file = home.path().join(".config/sparkfleet/contexts.toml");
    for text in
        ["current = \"t\"\n[contexts.t]\nconsole = \"http://127.0.0.1:1\"\n", "current = \"gone\"\n", "not toml"]
    {
        std::fs::write(&file, text).unwrap();
        assert_eq!(home.bash(&["sparkfleet", "config", "get", "B"], "B"), [""; 0], "{text}");
        assert_eq!(home.bash(&["sparkfleet", "config", "ge"], "ge"), ["get"], "{text}");
    }
}

/// Where the shells are installed: bash is on every machine that builds this.
#[test]
fn fish_and_zsh_complete_the_same() {
    let home = Home::new(&["Edge agent", "Edge_2", "Edge\u{1b}[31m", "Edge$(touch hacked)"]);
    let is_there = |shell: &str| Command::new(shell).args(["-c", "true"]).status().is_ok_and(|status| status.success());
    if is_there("fish") {
        let script = "sparkfleet completions fish | source; complete -C 'sparkfleet config get Ed'; complete -C 'sparkfleet alert ac'";
        let lines = home.run("fish", &["--no-config"], script);
        let (names, help) = lines.split_at(lines.find("ack\t").unwrap());
        assert_eq!(names.lines().collect::<Vec<_>>(), ["Edge agent", "Edge$(touch hacked)", "Edge_2"]);
        assert!(help.starts_with("ack\t") && help.len() > 10, "{help}");
    }
    if is_there("zsh") {
        // compadd works in the editor alone; what it would be given is printed.
        let script = "autoload -Uz compinit; compinit -D\nsource <(sparkfleet completions zsh)\ncompadd() { print -rl -- \"${names[@]}\" \"${folders[@]}\" }\nwords=(sparkfleet config get 'Edge\\ a'); CURRENT=4; _sparkfleet";
        assert_eq!(home.run("zsh", &["-f"], script).trim(), "Edge agent");
    }
}
