//! A host's root directory with programs in the place of those that need the kernel's device mapper: mapping and mounting a state disk. Keys, tokens and headers are those of the
//! real `cryptsetup`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The real one.
pub const CRYPTSETUP: &str = "/usr/sbin/cryptsetup";

/// Writes a program.
pub fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\nset -eu\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes the folders, and `bin/{cryptsetup,mkfs,mount,umount}`. They write down how they were called in `commands`; what lies on the disk lies in `content`.
pub fn install(root: &Path) {
    for folder in ["dev/mapper", "proc/self", "bin"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("proc/self/mounts"), "").unwrap();
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
    let mount = format!("rmdir $4; ln -s {root}/content $4; echo \"$3 $4 ext4 rw 0 0\" > {root}/proc/self/mounts");
    script(&at("mount"), &mount);
    script(&at("umount"), &format!("echo umount >> {root}/commands; rm $1; : > {root}/proc/self/mounts"));
}

/// Off and on: nothing is mapped or mounted, what lay in `/run` is gone.
pub fn reboot(root: &Path) {
    // There is none if the disk was not open.
    let _ = fs::remove_file(root.join("dev/mapper/state"));
    fs::write(root.join("proc/self/mounts"), "").unwrap();
    let _ = fs::remove_dir_all(root.join("run"));
}
