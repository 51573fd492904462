//! What runs in a process: the interface between the world and the state of a service.

use std::fmt::Debug;
use std::time::Duration;

use edge_sync::event::{Effect as SyncEffect, Event as SyncEvent};
use sparkplug::edge_node::{EdgeNodeConfig, NodeEvent, NodeUpdate};
use sparkplug::host::{HostConfig, HostEvent, HostRequest};
use sparkplug::{Metric, Now};

/// What comes into a program.
#[derive(Debug)]
pub enum Input {
    /// Its deadline has come.
    Timer,
    /// From its Edge Node.
    Node(NodeEvent),
    /// From its Host Application.
    Host(HostEvent),
    /// From Kubernetes, to edge sync.
    Sync(SyncEvent),
    /// From Kubernetes, to the join service.
    Join(join_service::event::Event),
    /// From KDC and Kubernetes, to krb-keys.
    Keys(krb_keys::event::Event),
    /// From Kubernetes, to edge monitor.
    Monitor(edge_monitor::event::Event),
    /// From the disk, to the cluster manager.
    Git(cluster_manager::event::GitResult),
    /// From the disk, to the cluster manager: what a copy needs.
    Copy(cluster_manager::event::CopyResult),
    /// From the disk, to the cluster manager: how a push ended.
    PushTaken(cluster_manager::event::PushResult),
    /// From the disk, users and clusters, to the git server.
    GitServer(git_server::event::Event),
    /// From a person over HTTP, to the cluster manager.
    GitRequest(cluster_manager::git_users::GitRequest),
    /// From a person, to the operator's program.
    Person(crate::model::script::OperatorWrite),
}

/// What a program wants done.
#[derive(Debug)]
pub enum Action {
    /// Start the Edge Node.
    Birth(Box<EdgeNodeConfig>, Vec<Metric>),
    /// To the Edge Node.
    Node(NodeUpdate),
    /// To the Host Application.
    Host(HostRequest),
    /// To Kubernetes.
    Sync(SyncEffect),
    /// To Kubernetes, and for the sessions of the join service.
    Join(Box<join_service::event::Effect>),
    /// To KDC and Kubernetes, of krb-keys.
    Keys(Box<krb_keys::event::Effect>),
    /// To the disk.
    Git(cluster_manager::event::GitWork),
    /// To the disk, of the cluster manager: for a copy.
    Copy(cluster_manager::event::CopyWork),
    /// To the disk, of the cluster manager: a push.
    Push(Box<cluster_manager::event::PushWork>),
    /// To the disk and to users, of the git server.
    GitServer(Box<git_server::event::Effect>),
    /// To a person over HTTP.
    GitResponse(Box<cluster_manager::git_users::GitResponse>),
    /// End the process in good order; it starts again after this time, or never.
    Exit {
        /// When it starts again.
        again_after: Option<Duration>,
    },
}

/// The state of a service behind one interface. A turn commits what must survive to the disk that was given at boot; the actions that it returns are not carried out yet.
pub trait Program: Debug {
    /// One turn.
    fn on_input(&mut self, input: Input, now: Now) -> Vec<Action>;

    /// When [`Input::Timer`] is due.
    fn next_deadline(&self) -> Option<Duration>;

    /// For the checks.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A program at its start.
#[derive(Debug)]
pub struct Boot {
    /// The state.
    pub program: Box<dyn Program>,
    /// Its Edge Node, unless the program starts it later.
    pub node: Option<(EdgeNodeConfig, Vec<Metric>)>,
    /// Its Host Application.
    pub host: Option<HostConfig>,
    /// First actions.
    pub actions: Vec<Action>,
}
