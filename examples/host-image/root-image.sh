#!/usr/bin/env bash
# Makes what boots of a tree: OUT/root.img (erofs with the dm-verity hashes behind it), OUT/roothash, OUT/hashoffset, OUT/initrd, OUT/vmlinuz.
# Everything of a cluster comes by overlays: directories whose files are laid over the tree. Run it as root.
# Usage: root-image.sh TREE OUT BOOTSTRAPPER [OVERLAY...]
#   BOOTSTRAPPER  the program, built with the feature `tpm`
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=${1:?the tree} out=${2:?the directory of the result} bootstrapper=${3:?the bootstrapper}
shift 3

mkdir -p "$out"
root=$out/tree
rm -rf "$root"
cp -a --reflink=auto "$tree" "$root"
for overlay in "$here/files" "$@"; do
    cp -r --no-preserve=ownership "$overlay/." "$root/"
done
# The lists of units stand beside the program in the sources; a package has them elsewhere.
units=${SPARKFLEET_UNITS:-$here/../../services/bootstrapper/systemd}
# With the drop-ins by which nothing of Kubernetes starts before the host is attested.
cp -rL --no-preserve=mode,ownership "$units/." "$root/etc/systemd/system/"
install -m 755 "$bootstrapper" "$root/usr/local/bin/sparkfleet-bootstrapper"
# Kubernetes' directories are mounted from the state disk; an image that cannot be written to must have them.
mkdir -p "$root"/etc/{kubernetes,rancher,cni} "$root"/var/lib/{etcd,kubelet,rancher,containerd,cni,sparkfleet} "$root"/var/log/{kubernetes,pods}
systemctl --quiet --root="$root" enable systemd-networkd systemd-networkd-wait-online sparkfleet-bootstrapper.service \
    sparkfleet-bootstrapper-renew.timer sparkfleet-host-key.service ssh.service 2>/dev/null
# Debian enables a container runtime when it is installed, but only the bootstrapper starts what belongs to Kubernetes.
for unit in containerd kubelet k3s k3s-agent; do
    systemctl --quiet --root="$root" disable "$unit.service" 2>/dev/null || true
done

# The times of files do not change the image: the same input gives the same root hash.
rm -f "$out/root.img"
mkfs.erofs --quiet -zlz4 -T0 -U 6f5a2c1e-5a0c-4b0e-9d0a-000000000001 "$out/root.img" "$root" 2>/dev/null ||
    mkfs.erofs -zlz4 -T0 -U 6f5a2c1e-5a0c-4b0e-9d0a-000000000001 "$out/root.img" "$root" >/dev/null
size=$(stat -c %s "$out/root.img")
offset=$(((size + 4095) / 4096 * 4096))
truncate -s "$offset" "$out/root.img"
veritysetup format --salt=00 --uuid=6f5a2c1e-5a0c-4b0e-9d0a-000000000002 --hash-offset="$offset" "$out/root.img" "$out/root.img" |
    awk '/^Root hash/ { print $3 }' >"$out/roothash"
echo "$offset" >"$out/hashoffset"
grep -qE '^[0-9a-f]{64}$' "$out/roothash"

# The initrd: busybox, veritysetup with its libraries, the modules up to the root, and `init`.
initrd=$out/initrd.tree
rm -rf "$initrd"
mkdir -p "$initrd"/{bin,dev,proc,sys,modules,read-only,read-write,root}
cp "$(command -v busybox)" "$initrd/bin/busybox"
for applet in cat echo insmod mkdir mount reboot sh sleep switch_root umount; do
    ln -s busybox "$initrd/bin/$applet"
done
install -m 755 "$here/initrd-init" "$initrd/init"
version=$(basename "$root"/usr/lib/modules/*)
chroot "$root" modprobe --set-version "$version" --show-depends --all virtio_pci virtio_blk dm-verity erofs overlay |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$initrd/modules/paths"
while read -r path; do
    cp "$root$path" "$initrd/modules/"
    basename "$path"
done <"$initrd/modules/paths" >"$initrd/modules/order"
rm "$initrd/modules/paths"
# Of the tree, not of this machine: program and libraries belong together.
cp "$root/usr/sbin/veritysetup" "$initrd/bin/"
chroot "$root" ldd /usr/sbin/veritysetup | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$initrd$(dirname "$library")"
    cp -L "$root$library" "$initrd$library"
done
find "$initrd" -exec touch --no-dereference --date=@0 {} +
(cd "$initrd" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet --reproducible --create --format=newc --owner=0:0 | gzip -n -6) >"$out/initrd"
cp "$tree.vmlinuz" "$out/vmlinuz"
rm -rf "$root" "$initrd"
