//! A host's root directory with programs in the place of those that need the kernel's device mapper: mapping and mounting a state disk. Keys, tokens and headers are those of the
//! real `cryptsetup`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The real one.
pub const CRYPTSETUP: &str = "/usr/sbin/cryptsetup";

/// Writes a program that ends with the first command of it that fails.
pub fn script(path: &Path, text: &str) {
    write_program(path, &format!("#!/bin/sh\nset -eu\n{text}\n"));
}

/// Writes a program. Another process does: what a test has open for writing is open in each process that another test has just forked, and then Linux does not start it.
pub fn write_program(path: &Path, text: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().expect("install is one of coreutils");
    install.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success(), "{}", path.display());
}

/// Makes the folders, and `bin/{cryptsetup,mkfs,mount,umount}`. They write down how they were called in `commands`; what lies on the disk lies in `content`.
pub fn install(root: &Path) {
    for folder in ["dev/mapper", "proc/self", "bin"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for list in ["mounts", "mountinfo"] {
        fs::write(root.join("proc/self").join(list), "").unwrap();
    }
    let (at, root) = (|name: &str| root.join("bin").join(name), root.display());
    // Maps nothing: a key that is right leaves the node of the mapping.
    script(
        &at("cryptsetup"),
        &format!(
            "echo \"$*\" >> {root}/commands\ncase \"$*\" in\n*--test-passphrase*) exec {CRYPTSETUP} \"$@\" ;;\n\
             open*) list=; while [ $# -gt 1 ]; do list=\"$list $1\"; shift; done; {CRYPTSETUP} $list --test-passphrase; touch {root}/dev/mapper/$1 ;;\n\
             close*) rm {root}/dev/mapper/state ;;\n*) exec {CRYPTSETUP} \"$@\" ;;\nesac"
        ),
    );
    script(&at("mkfs"), &format!("echo \"mkfs $*\" >> {root}/commands; rm -rf {root}/content; mkdir {root}/content"));
    let mount = format!(
        "echo \"mount $*\" >> {root}/commands\nif [ $1 = --bind ]; then rmdir $3; ln -s $2 $3\n\
         echo \"2 1 253:0 ${{2#{root}/run/state}} $3 rw - ext4 {root}/dev/mapper/state rw\" >> {root}/proc/self/mountinfo; exit; fi\n\
         rmdir $4; ln -s {root}/content $4; echo \"$3 $4 ext4 rw 0 0\" > {root}/proc/self/mounts\n\
         echo \"1 0 253:0 / $4 rw - ext4 $3 rw\" >> {root}/proc/self/mountinfo"
    );
    script(&at("mount"), &mount);
    script(
        &at("umount"),
        &format!("echo umount >> {root}/commands; rm $1; : > {root}/proc/self/mounts; : > {root}/proc/self/mountinfo"),
    );
}

/// Removes the symbolic links below a folder, which represent mounts.
fn remove_links(path: &Path) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_symlink() {
        fs::remove_file(path).unwrap();
    } else if metadata.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| remove_links(&entry.unwrap().path()));
    }
}

/// Off and on: nothing is mapped or mounted, what lay in `/run` is gone.
pub fn reboot(root: &Path) {
    // There is none if the disk was not open.
    let _ = fs::remove_file(root.join("dev/mapper/state"));
    for list in ["mounts", "mountinfo"] {
        fs::write(root.join("proc/self").join(list), "").unwrap();
    }
    // What was mounted is empty again, as on a root that is new at each boot.
    for folder in ["run", "etc/kubernetes", "etc/rancher", "var"] {
        remove_links(&root.join(folder));
    }
    let _ = fs::remove_dir_all(root.join("run"));
}

/// The state disk, opened and mounted as it is after its key was given.
pub fn mount_state(root: &Path) {
    let (mapped, state) = (root.join("dev/mapper/state"), root.join("run/state"));
    fs::write(&mapped, "").unwrap();
    fs::create_dir_all(root.join("run")).unwrap();
    std::os::unix::fs::symlink(root.join("content"), &state).unwrap();
    let (mapped, state) = (mapped.display(), state.display());
    fs::write(root.join("proc/self/mounts"), format!("{mapped} {state} ext4 rw 0 0\n")).unwrap();
    fs::write(root.join("proc/self/mountinfo"), format!("1 0 253:0 / {state} rw - ext4 {mapped} rw\n")).unwrap();
}
