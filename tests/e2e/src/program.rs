//! Where the programs are. A test's own executable is in `target/<profile>/deps`, and cargo builds the programs of the same profile beside it.
//!
//! They are built once a run, by whichever test asks first; cargo's own lock keeps several test programs from building at the same time. `SPARKFLEET_PROGRAMS`
//! names a directory of programs that are to be tested as they are.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

static BUILT: Mutex<BTreeMap<String, Result<PathBuf, String>>> = Mutex::new(BTreeMap::new());

/// The program `sparkfleet`, built with the profile and the features of the test: other packages' tests start the same file.
///
/// # Panics
/// It cannot be built; the message is cargo's.
#[must_use]
pub fn sparkfleet() -> PathBuf {
    let features = if cfg!(feature = "kerberos") { "sparkfleet/kerberos" } else { "" };
    found(&Program { package: "sparkfleet", name: "sparkfleet", features })
}

/// The program `sparkfleet-bootstrapper` with its feature `tpm`, built with the profile of the test.
///
/// # Panics
/// It cannot be built; the message is cargo's.
#[must_use]
pub fn bootstrapper() -> PathBuf {
    found(&Program { package: "bootstrapper", name: "sparkfleet-bootstrapper", features: "bootstrapper/tpm" })
}

/// The same, built with another profile of the workspace.
///
/// # Panics
/// It cannot be built; the message is cargo's.
#[must_use]
pub fn bootstrapper_with(profile: &str) -> PathBuf {
    let program = Program { package: "bootstrapper", name: "sparkfleet-bootstrapper", features: "bootstrapper/tpm" };
    let find = || {
        if let Some(directory) = std::env::var_os("SPARKFLEET_PROGRAMS") {
            return given(&directory, &program);
        }
        let (own, _) = profile_directory()?;
        let target = own.parent().ok_or("the test is not in a target directory")?;
        build(&program, &target.join(profile), profile)
    };
    find().unwrap_or_else(|reason| panic!("the program {} is not there: {reason}", program.name))
}

/// The program `sparkfleet-edge-agent`, built with the profile of the test.
///
/// # Panics
/// It cannot be built; the message is cargo's.
#[must_use]
pub fn edge_agent() -> PathBuf {
    found(&Program { package: "edge-agent", name: "sparkfleet-edge-agent", features: "" })
}

/// The program of the package with that name, built with the profile of the test.
///
/// # Panics
/// It cannot be built; the message is cargo's.
#[must_use]
pub fn named(package: &str) -> PathBuf {
    found(&Program { package, name: package, features: "" })
}

/// A program of the workspace.
struct Program<'a> {
    package: &'a str,
    name: &'a str,
    features: &'a str,
}

fn found(program: &Program<'_>) -> PathBuf {
    // A panic while the lock was held has been reported; the map is whole in any case.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let path = built.entry(program.name.to_owned()).or_insert_with(|| find(program));
    match path {
        Ok(path) => path.clone(),
        Err(reason) => panic!("the program {} is not there: {reason}", program.name),
    }
}

fn find(program: &Program<'_>) -> Result<PathBuf, String> {
    if let Some(directory) = std::env::var_os("SPARKFLEET_PROGRAMS") {
        return given(&directory, program);
    }
    let (directory, profile) = profile_directory()?;
    build(program, &directory, &profile)
}

/// The program that is to be tested as it is.
fn given(directory: &OsStr, program: &Program<'_>) -> Result<PathBuf, String> {
    let path = Path::new(directory).join(program.name);
    if path.is_file() { Ok(path) } else { Err(format!("SPARKFLEET_PROGRAMS has no {}", path.display())) }
}

/// Builds the program of a package with a profile of the workspace, and says where it is.
///
/// # Errors
/// What cargo says.
pub fn build_with(package: &str, profile: &str) -> Result<PathBuf, String> {
    let (own, _) = profile_directory()?;
    let target = own.parent().ok_or("the test is not in a target directory")?;
    let folder = if profile == "dev" { "debug" } else { profile };
    build(&Program { package, name: package, features: "" }, &target.join(folder), profile)
}

/// The directory of the profile that this executable was built with, and the profile's name.
fn profile_directory() -> Result<(PathBuf, String), String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = own.parent().ok_or("this executable is in no directory")?;
    // Tests are in `deps`, programs are not.
    let directory = if beside.ends_with("deps") { beside.parent().unwrap_or(beside) } else { beside };
    let folder = directory.file_name().and_then(|name| name.to_str()).ok_or("the target directory has no name")?;
    let profile = if folder == "debug" { "dev" } else { folder };
    Ok((directory.to_owned(), profile.to_owned()))
}

fn build(program: &Program<'_>, directory: &Path, profile: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = directory.parent().ok_or("the test is not in a target directory")?;
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(cargo);
    // What cargo says of the test's own package would be a change to build scripts that ask for it: they would run again, and all that is built upon them.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&variable);
        }
    }
    let output = command
        .args(["build", "--quiet", "--locked", "--profile", profile, "--package", program.package])
        .args(["--features", program.features, "--target-dir"])
        .arg(target)
        .current_dir(workspace)
        .output()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo build --package {}: {}", program.package, String::from_utf8_lossy(&output.stderr)));
    }
    let path = directory.join(program.name);
    if path.is_file() { Ok(path) } else { Err(format!("cargo has built no {}", path.display())) }
}
