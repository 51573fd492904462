//! What the API server of a control plane writes down: who asked for what, without the bodies of requests.

/// Its policy.
pub(super) const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n  - level: Metadata\n";

/// Arguments of the API server that bound its log: days, files, MiB of a file.
pub(super) const LIMITS: [(&str, u32); 3] =
    [("audit-log-maxage", 30), ("audit-log-maxbackup", 10), ("audit-log-maxsize", 100)];
