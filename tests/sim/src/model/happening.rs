//! What is queued.

use crate::model::broker::SessionId;
use crate::model::ids::{ClusterId, ProcessId};
use crate::model::network::Packet;
use crate::model::program::Input;
use crate::model::transition::Transition;

/// What is queued.
#[derive(Debug)]
pub enum Happening {
    /// Something travels on a connection.
    Packet(SessionId, Packet),
    /// Something for a program.
    Input(ProcessId, u64, Box<Input>),
    /// Kubernetes carries out what a program asked.
    Kubernetes(ClusterId, Box<crate::model::kubernetes::Work>),
    /// A repository is written.
    Git(ProcessId, u64, Box<cluster_manager::event::GitWork>),
    /// A repository is looked at for its copy, or packed.
    Copy(ProcessId, u64, Box<cluster_manager::event::CopyWork>),
    /// A copy is worked on.
    Copying(ProcessId, u64, Box<git_server::event::CopyWork>),
    /// A push reaches the disk of the cluster manager.
    Push(ProcessId, u64, Box<cluster_manager::event::PushWork>),
    /// A process begins a new life.
    Start(ProcessId),
    /// A process is gone for ever.
    Remove(ProcessId),
    /// KDC and Kubernetes carry out what krb-keys asked.
    Keys(ClusterId, ProcessId, u64, Box<crate::model::keys::KeyWork>),
    /// Kubernetes carries out what a replica of a join service asked.
    Join(ClusterId, Box<crate::model::joins::JoinWork>),
    /// Something that the seed chose.
    Transition(Transition),
}
