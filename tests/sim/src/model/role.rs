//! What a process is.

use std::fmt;

use uuid::Uuid;

use crate::model::enrolment::Applicant;
use crate::model::ids::ClusterId;

/// What a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// ConfigDB.
    ConfigDb,
    /// The cluster manager.
    ClusterManager,
    /// Identity.
    Identity,
    /// The git server.
    GitServer,
    /// The central monitor.
    Central,
    /// Edge sync of a cluster.
    Sync(ClusterId),
    /// Edge monitor of a cluster.
    Monitor(ClusterId),
    /// krb-keys of a cluster.
    Keys(ClusterId),
    /// A replica of the join service of a cluster.
    Join(ClusterId, u8),
    /// A machine that wants to join a cluster, by its number.
    Host(ClusterId, u64),
    /// Who asks by a cluster's token to be enrolled.
    Enrolling(ClusterId, Applicant),
    /// An edge agent on a cluster.
    Agent {
        /// Where.
        cluster: ClusterId,
        /// Its deployment.
        uuid: Uuid,
        /// Its edge node id.
        name: String,
        /// It reloads when it is asked.
        obeys: bool,
    },
    /// Someone who writes to ConfigDB.
    Operator,
    /// Someone who listens to what the services say of themselves.
    Observer,
    /// The web console.
    Console,
}

impl Role {
    /// The cluster that it runs on.
    #[must_use]
    pub const fn cluster(&self) -> Option<ClusterId> {
        match self {
            Self::Sync(cluster)
            | Self::Monitor(cluster)
            | Self::Keys(cluster)
            | Self::Join(cluster, _)
            | Self::Host(cluster, _)
            | Self::Enrolling(cluster, _)
            | Self::Agent { cluster, .. } => Some(*cluster),
            Self::ConfigDb
            | Self::ClusterManager
            | Self::Identity
            | Self::GitServer
            | Self::Central
            | Self::Operator
            | Self::Observer
            | Self::Console => None,
        }
    }

    /// A service of ours: it may crash anywhere.
    #[must_use]
    pub const fn is_service(&self) -> bool {
        !matches!(self, Self::Operator | Self::Observer | Self::Host(..) | Self::Enrolling(..) | Self::Agent { .. })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigDb => f.write_str("configdb"),
            Self::ClusterManager => f.write_str("cluster-manager"),
            Self::Identity => f.write_str("identity"),
            Self::GitServer => f.write_str("git-server"),
            Self::Central => f.write_str("central-monitor"),
            Self::Sync(ClusterId(n)) => write!(f, "sync-{n}"),
            Self::Monitor(ClusterId(n)) => write!(f, "monitor-{n}"),
            Self::Keys(ClusterId(n)) => write!(f, "keys-{n}"),
            Self::Join(ClusterId(n), replica) => write!(f, "join-{n}-{replica}"),
            Self::Enrolling(ClusterId(n), applicant) => write!(f, "enrolling-{n}-{applicant:?}"),
            Self::Host(ClusterId(n), number) => write!(f, "host-{n}-{number}"),
            Self::Agent { cluster: ClusterId(n), name, uuid, .. } => write!(f, "agent-{n}-{name}-{uuid}"),
            Self::Operator => f.write_str("operator"),
            Self::Observer => f.write_str("observer"),
            Self::Console => f.write_str("console"),
        }
    }
}
