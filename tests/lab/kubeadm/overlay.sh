#!/usr/bin/env bash
# Makes what is laid over the root of a host whose Kubernetes is made by kubeadm: programs, units, configuration of containerd, and all images in one archive
# (OCI image layout), because no registry can be reached. The images hold the static programs of .ci/kubernetes, which are not those that Kubernetes publishes.
# Usage: overlay.sh PROGRAMS TREE OUT     PROGRAMS: the result of .ci/kubernetes MINOR host; TREE: that of root-tree.sh with packages-kubeadm
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
programs=${1:?the programs}/bin tree=${2:?the tree} out=${3:?the directory of the result}
rm -rf "$out"
mkdir -p "$out"/opt/{bin,cni/bin} "$out"/usr/bin "$out"/usr/share/images "$out"/etc/containerd
cp -r "$here/files/." "$out/"
# The network card with this address of hardware is the one to the other machines of a story (`Lan`, tests/lab/src/machine.rs).
mkdir -p "$out/etc/systemd/network"
for number in 1 2 3; do
    printf '[Match]\nMACAddress=52:54:00:77:00:0%s\n\n[Network]\nAddress=10.77.0.%s/24\n' "$number" "$number" \
        >"$out/etc/systemd/network/05-lan-$number.network"
done
install -m 755 "$programs"/{kubeadm,kubectl} "$out/opt/bin/"
install -m 755 "$programs/kubelet" "$out/usr/bin/"
install -m 755 "$programs"/{bridge,host-local,loopback,portmap} "$out/opt/cni/bin/"

version=$("$programs/kubeadm" version --output short)
names=$("$programs/kubeadm" config images list --kubernetes-version "$version")
named() { # PROGRAM: the name of its image, with its version
    grep -E "(^|/)$1:" <<<"$names"
}
cat >"$out/etc/containerd/config.toml" <<END
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "$(named pause)"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/opt/cni/bin"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
END

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
layout=$work/layout
mkdir -p "$layout/blobs/sha256"
manifests=()

blob() { # FILE: into the layout; prints `"digest": ..., "size": ...`
    local hash
    hash=$(sha256sum "$1" | cut -d ' ' -f 1)
    printf '"digest": "sha256:%s", "size": %s' "$hash" "$(stat -c %s "$1")"
    mv "$1" "$layout/blobs/sha256/$hash"
}

environment=
image() { # NAME ROOT COMMAND...: an image of one layer, with $environment (strings of JSON)
    local name=$1 root=$2 word command="" layer config difference manifest
    shift 2
    mkdir -p "$root"/{etc,tmp,var/run}
    tar --create --file="$work/layer" --directory="$root" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 .
    difference=$(sha256sum "$work/layer" | cut -d ' ' -f 1)
    layer=$(blob "$work/layer")
    for word in "$@"; do command+="${command:+, }\"$word\""; done
    printf '{"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/local/bin:/usr/sbin:/bin"%s], "Entrypoint": [%s]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' \
        "${environment:+, $environment}" "$command" "$difference" >"$work/config"
    config=$(blob "$work/config")
    printf '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": {"mediaType": "application/vnd.oci.image.config.v1+json", %s}, "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", %s}]}' \
        "$config" "$layer" >"$work/manifest"
    manifest=$(blob "$work/manifest")
    manifests+=("{\"mediaType\": \"application/vnd.oci.image.manifest.v1+json\", $manifest, \"annotations\": {\"io.containerd.image.name\": \"$name\"}}")
    rm -rf "$root"
}

# The tree of an image with a program.
with() { # PROGRAM...
    rm -rf "$work/root"
    mkdir -p "$work/root/usr/local/bin"
    install -m 755 "${@/#/$programs/}" "$work/root/usr/local/bin/"
}

# The same with a shell.
with_shell() { # PROGRAM...
    rm -rf "$work/root"
    mkdir -p "$work/root/bin" "$work/root/usr/local/bin"
    install -m 755 "$(command -v busybox)" "$work/root/bin/busybox"
    for applet in cat echo ip mv ping sh sleep; do ln -s busybox "$work/root/bin/$applet"; done
    for program; do install -m 755 "$programs/$program" "$work/root/usr/local/bin/"; done
}

# A simulated processor answers late.
# A member of etcd that hears nothing for a second would begin an election, and nothing is written until that ends.
environment='"ETCD_HEARTBEAT_INTERVAL=1000", "ETCD_ELECTION_TIMEOUT=10000"'
with etcd
image "$(named etcd)" "$work/root" etcd
environment=
with kube-apiserver
image "$(named kube-apiserver)" "$work/root" kube-apiserver
# A program that loses its lease ends, and its next start takes minutes. Of an option that is given twice the last one counts.
for program in kube-controller-manager kube-scheduler; do
    with_shell "$program"
    mkdir "$work/root/usr/local/lib"
    mv "$work/root/usr/local/bin/$program" "$work/root/usr/local/lib/$program"
    cat >"$work/root/usr/local/bin/$program" <<END
#!/bin/sh
exec /usr/local/lib/$program "\$@" --leader-elect-lease-duration=300s --leader-elect-renew-deadline=240s --leader-elect-retry-period=10s
END
    chmod 755 "$work/root/usr/local/bin/$program"
    image "$(named "$program")" "$work/root" "$program"
done
with_shell
image "$(named pause)" "$work/root" sleep infinity
# No name of a service is resolved: CoreDNS is not built. Its image is there, because kubeadm asks for it.
with_shell
image "$(named coredns)" "$work/root" sh -c "exec sleep infinity"
with_shell kubectl
image lab.invalid/network:1 "$work/root" sh
# kube-proxy calls iptables. Program and libraries are those of the tree.
with kube-proxy
mkdir -p "$work/root/usr/sbin"
cp "$tree/usr/sbin/xtables-nft-multi" "$work/root/usr/sbin/"
for name in {ip,ip6}tables{,-save,-restore}; do ln -s xtables-nft-multi "$work/root/usr/sbin/$name"; done
modules=$(cd "$tree" && find usr/lib/*/xtables -name '*.so' -printf '/%p\n')
{
    echo "$modules"
    # shellcheck disable=SC2086 # one word a module
    chroot "$tree" ldd /usr/sbin/xtables-nft-multi $modules | sed -nE 's/^\t(.* )?(\/[^ ]+) \(.*/\2/p' | sort -u
} | while read -r library; do
    mkdir -p "$work/root$(dirname "$library")"
    cp -L "$tree$library" "$work/root$library"
done
image "$(named kube-proxy)" "$work/root" kube-proxy

printf '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
printf '{"schemaVersion": 2, "manifests": [%s]}' "$(IFS=,; echo "${manifests[*]}")" >"$layout/index.json"
tar --create --file="$out/usr/share/images/all.tar" --directory="$layout" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 .
