//! The console's page: what is committed is what its sources make, and it works in a real browser as users expect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interop::{installed, run};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Copies a folder without the packages that npm has put into it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        if path.is_dir() && !path.ends_with("node_modules") {
            copy(&path, &target);
        } else if path.is_file() {
            fs::copy(path, target).unwrap();
        }
    }
}

/// Packages of a folder of the repository, as its lock file says; the folder that holds `node_modules`.
fn packages(name: &str, folder: &str) -> PathBuf {
    let files = ["package.json", "package-lock.json"].map(|file| repository().join(folder).join(file));
    let stamp: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    installed(name, &stamp, |directory| {
        for file in &files {
            let copied = fs::copy(file, directory.join(file.file_name().unwrap()));
            copied.map_err(|error| error.to_string())?;
        }
        run(Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(directory))
    })
}

#[test]
fn the_committed_page_is_what_its_sources_make_within_its_budgets() {
    let directory = tempfile::tempdir().unwrap();
    let of_copy = |path: &str| directory.path().join(path);
    // The runbooks of the alerts are a page of the bundle, and are compared with the alerts that there are.
    for file in ["docs/alerts.md", "services/libs/fleet-view/src/alerts.rs"] {
        fs::create_dir_all(of_copy(file).parent().unwrap()).unwrap();
        fs::copy(repository().join(file), of_copy(file)).unwrap();
    }
    for part in ["services/console/web", "services/console/assets"] {
        copy(&repository().join(part), &of_copy(part));
    }
    let modules = packages("console-page", "services/console/web").join("node_modules");
    std::os::unix::fs::symlink(modules, of_copy("services/console/web/node_modules")).unwrap();
    for script in ["check", "test"] {
        let ended = run(Command::new("npm").args(["run", script]).current_dir(of_copy("services/console/web")));
        ended.unwrap_or_else(|reason| panic!("npm run {script}: {reason}"));
    }
}
