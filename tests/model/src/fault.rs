//! Faults that are seeded into the protocol, one for each thing that it depends on. The checker has to find each of them.

use edge_sync_contract::DesiredIndex;
use sparkplug::replication::Origin;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The message does not say which store it comes from.
    NoOrigin,
    /// Every store says the same identity.
    StoreIgnored,
    /// The sender says of whatever revision was accepted that its store contains it.
    RevisionIgnored,
    /// A revision alone says which state of the store is meant.
    TimelineIgnored,
    /// A store that is set back writes on in the timeline that it was in. Its machine was set back with the memory of the process, and the next session does not begin another timeline.
    TimelineKept,
    /// The sender says epoch 0, whatever an operator decided.
    EpochIgnored,
    /// What a hold is judged by is not stored with the accepted index.
    HoldNotPersisted,
    /// The receiver reports what it accepted before that is on its disk.
    ReportedBeforeStored,
    /// The sender derives the desired state from a part of the store's birth.
    IncompleteSender,
    /// The sender numbers its messages without regard to what the receiver reports.
    ReportIgnored,
    /// An operator's decision counts for whatever the receiver has accepted when it arrives. Commands from before may still be on their way, and the sender may not know the store yet.
    HastyDecision,
    /// An operator does not look again at what the store has after what runs at the edge was written back.
    BlindWriteBack,
    /// ConfigDB takes an operator's decision in whatever state it is, be it restored since the operator compared it with the edge.
    UnconditionalDecision,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::NoOrigin,
        Self::StoreIgnored,
        Self::RevisionIgnored,
        Self::TimelineIgnored,
        Self::TimelineKept,
        Self::EpochIgnored,
        Self::HoldNotPersisted,
        Self::ReportedBeforeStored,
        Self::IncompleteSender,
        Self::ReportIgnored,
        Self::HastyDecision,
        Self::BlindWriteBack,
        Self::UnconditionalDecision,
    ];

    /// Whether messages lack something: then they always have.
    pub(crate) const fn is_of_the_wire(self) -> bool {
        matches!(self, Self::NoOrigin | Self::StoreIgnored | Self::TimelineIgnored)
    }

    /// What a sender with this fault sends instead of `index` to a receiver that accepted its last index from `accepted`.
    pub(crate) fn spoil(self, index: &mut DesiredIndex, accepted: Option<Origin>) {
        match self {
            Self::NoOrigin => (index.origin, index.follows) = (None, None),
            Self::HastyDecision => index.decided_for = None,
            Self::RevisionIgnored => index.follows = accepted.map(|accepted| accepted.point),
            _ => {}
        }
        let Some(origin) = &mut index.origin else { return };
        match self {
            Self::StoreIgnored => {
                origin.store = uuid::Uuid::nil();
                // Of a store that counts as the same one it is known how far it goes.
                index.follows = accepted.map(|accepted| accepted.point);
            }
            Self::TimelineIgnored => {
                origin.point.timeline = 0;
                index.follows = None;
            }
            Self::EpochIgnored => origin.epoch = 0,
            _ => {}
        }
    }
}
