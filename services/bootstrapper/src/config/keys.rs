//! Every key of the configuration, as it is explained to a person.

use service_runtime::keys::ConfigKey;
use sparkplug_mqtt::MqttConfig;

const fn key(key: &'static str, default: &'static str, help: &'static str) -> ConfigKey {
    ConfigKey { key, default, help }
}

/// Every key but those of `[mqtt]`, which its owner documents.
pub const KEYS: &[ConfigKey] = &[
    key("organisation", "ACME", "first part of the Sparkplug group"),
    key("state_dir", "/var/lib/sparkfleet", "directory that keeps the bdSeq between two runs"),
    key("role", "worker", "worker or control-plane; the cluster's policy decides whether the host may be it"),
    key("node_name", "", "name that the host asks for; absent: its host name"),
    key(
        "addresses",
        "",
        "addresses by which the host is reached, for its certificates; the first is its node address; empty: none but, for SSH, that by which it reaches the broker",
    ),
    key("suites", "x-wing,x25519", "suites of the join protocol, the preferred first"),
    key("cluster.name", "", "name of the only cluster that the host may join"),
    key("cluster.uuid", "", "UUID of the cluster's object in ConfigDB"),
    key("trust.root", "", "public key of the organisation's root (Ed25519), 64 hexadecimal digits"),
    key("trust.epoch_min", "1", "issuer certificates of a lower epoch are void"),
    key(
        "trust.clock",
        "true",
        "the clock is believed once it says 2025 or later; false: times of certificates are not looked at",
    ),
    key("attestation.tcti", "device:/dev/tpmrm0", "how the TPM is reached, in the words of tpm2-tss"),
    key(
        "attestation.bank",
        "sha256",
        "bank in which the lock register is looked at, sha256 or sha384; what is quoted is the policy's to say",
    ),
    key(
        "attestation.lock_register",
        "15",
        "register that is extended when the host takes its ticket, 0 to 15; as in the policy (lock.pcr)",
    ),
    key(
        "attestation.lock_before",
        "",
        "value of that register before, hexadecimal; absent: zeros; as in the policy (lock.before)",
    ),
    key(
        "attestation.intermediates",
        "",
        "certificates between that of the endorsement key and its manufacturer, PEM, if the TPM does not hold them; at most three are sent; better given as attestation.intermediates_file",
    ),
    key(
        "attestation.event_log",
        "/sys/kernel/security/tpm0/binary_bios_measurements",
        "event log of firmware, which is sent where the policy judges by events (boot)",
    ),
    key("disk.device", "/dev/disk/by-partlabel/sparkfleet-state", "block device of the state disk"),
    key("disk.mapping", "state", "name of its mapping below /dev/mapper"),
    key(
        "disk.format",
        "false",
        "make a blank disk, and one that no member needs, anew; a disk that cannot be read is never touched",
    ),
    key(
        "disk.uuid",
        "",
        "UUID of the state disk: a blank one gets it, one with another is not used; the host's name at the broker if it has credentials of its own; absent: a random one",
    ),
    key("disk.integrity", "true", "new disks authenticate their sectors as well (dm-integrity)"),
    key(
        "disk.directories",
        "/etc/kubernetes,/etc/rancher,/var/lib/cni,/var/lib/containerd,/var/lib/etcd,/var/lib/kubelet,/var/lib/rancher,/var/log/kubernetes,/var/log/pods",
        "directories of the host that lie on the state disk, as bind mounts, before anything of Kubernetes is started",
    ),
    key("disk.cryptsetup", "/usr/sbin/cryptsetup", "the cryptsetup program"),
    key("disk.mkfs", "/usr/sbin/mkfs.ext4", "the program that makes its file system"),
    key("disk.mount", "/usr/bin/mount", "the program that mounts it"),
    key("disk.umount", "/usr/bin/umount", "the program that unmounts it"),
    key("kubernetes.distribution", "k3s", "k3s or kubeadm"),
    key("kubernetes.program", "", "program of the distribution; absent: /usr/local/bin/k3s or /opt/bin/kubeadm"),
    key("kubernetes.systemctl", "/usr/bin/systemctl", "the systemctl program"),
    key(
        "kubernetes.container_runtime",
        "unix:///run/containerd/containerd.sock",
        "socket of the container runtime, for kubeadm",
    ),
    key(
        "kubernetes.container_runtime_unit",
        "containerd.service",
        "systemd unit of the container runtime, for kubeadm: started before it, once its directory lies on the state disk; empty: somebody else starts it",
    ),
    key("kubernetes.attempts_max", "3", "how often a join is tried; between two tries it is reset"),
    key("kubernetes.component_bytes_max", "536870912", "bytes that a downloaded component may have"),
    key("kubernetes.ca_file", "", "PEM file of the authorities for HTTPS downloads; absent: those of the system"),
    key(
        "paths.root",
        "/",
        "root directory of the host: devices, files and components lie below it; programs that are started here, and what this configuration reads, do not",
    ),
    key("paths.state", "/run/state", "where the state disk is mounted"),
    key(
        "paths.run",
        "/run/sparkfleet",
        "directory of what must be gone after a reboot: the temporary passphrase, configurations with tokens",
    ),
    key(
        "paths.ssh_host_key",
        "/etc/ssh/ssh_host_ed25519_key.pub",
        "public SSH host key that is certified, if there is one",
    ),
    key("timeouts.retry_ms", "30000", "rest after a failure before the lock"),
    key("timeouts.lock_ms", "120000", "longest time from a ticket to the lock"),
    key("timeouts.member_ms", "900000", "longest time from the lock until the host is a member"),
    key("timeouts.reboot_ms", "60000", "how long a failure after the lock can be read before the host reboots"),
    key("timeouts.linger_ms", "900000", "how long a member goes on answering on the broker"),
    key("timeouts.administrator_ms", "600000", "how long an administrator is asked, too, after each command"),
    key("timeouts.command_ms", "300000", "longest time of one command on the host"),
    key(
        "renewal.at_percent",
        "66",
        "share of the life of a member's certificates that is over when they are renewed, 0 to 90; looked at when the program is started on a member; 0: at each start",
    ),
    key("http.listen", "", "address for /livez, /readyz and /metrics; absent: not served"),
    key("log.format", "human", "human or json"),
    key("log.filter", "info", "what is logged, such as info,bootstrapper=debug"),
];

/// Every key with those of `[mqtt]`.
#[must_use]
pub fn keys() -> Vec<ConfigKey> {
    let mqtt = MqttConfig::KEYS.iter().map(|key| ConfigKey { key: key.key, default: key.default, help: key.help });
    KEYS.iter().copied().chain(mqtt).collect()
}
