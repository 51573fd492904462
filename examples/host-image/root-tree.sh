#!/usr/bin/env bash
# Makes the tree of a host's root file system of Debian packages: TREE/ with the kernel's modules, and vmlinuz beside it as TREE.vmlinuz.
# Knows nothing of a cluster: one tree serves all. Run it as root.
# Usage: root-tree.sh TREE [LIST...]     LIST: files that name further Debian packages, such as packages-kubeadm
# Environment: SUITE: of Debian, bookworm if not given
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=${1:?the directory of the tree}
suite=${SUITE:-bookworm}
shift
packages=$(sed '/^#/d' "$here/packages" "$@" | paste -sd, -)

rm -rf "$tree" "$tree.vmlinuz" "$tree.kernel"
mkdir -p "$tree.kernel"
# The kernel is unpacked, not installed: its package would make an initrd that is not needed. The meta package says which kernel is the newest.
fetch_kernel="set -eu; cd '$tree.kernel'; export APT_CONFIG=\"\$MMDEBSTRAP_APT_CONFIG\"
    name=\$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \\(linux-image-[0-9][^ ]*\\).*/\\1/p' | head -n 1)
    apt-get -qq -o APT::Sandbox::User=root download \"\$name\""
mmdebstrap --quiet --variant=minbase --mode=root --include="$packages" --customize-hook="$fetch_kernel" \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    "$suite" "$tree"

dpkg-deb -x "$tree.kernel"/linux-image-*.deb "$tree.kernel"
mkdir -p "$tree/usr/lib/modules"
cp -a "$tree.kernel"/lib/modules/* "$tree/usr/lib/modules/"
cp "$tree.kernel"/boot/vmlinuz-* "$tree.vmlinuz"
# kubeadm looks at what the kernel was built with.
mkdir -p "$tree/boot"
cp "$tree.kernel"/boot/config-* "$tree/boot/"
version=$(basename "$tree"/usr/lib/modules/*)
chroot "$tree" depmod "$version"
rm -rf "$tree.kernel"

# What differs from machine to machine is made at boot: no machine has another's SSH host key or machine id.
rm -f "$tree"/etc/ssh/ssh_host_*
: >"$tree/etc/machine-id"
: >"$tree/etc/fstab"
# mmdebstrap leaves that of the machine that builds.
: >"$tree/etc/resolv.conf"
rm -f "$tree"/var/lib/dbus/machine-id "$tree"/etc/systemd/system/timers.target.wants/{apt,dpkg,e2scrub,fstrim}*
mkdir -p "$tree/root" "$tree/opt"
