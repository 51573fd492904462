//! What a host is when its bootstrapper starts: a function of the lock PCR, the state disk and the record on it.
//!
//! The record says "joining" before the PCR is extended, so an extended PCR without it was extended by another program. Then the host only reports it: a host that
//! reboots because of it would do so for ever.

use crate::platform::{DiskFound, Mark};
use crate::record::{NodeRecord, Progress};

/// What follows from a look around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No member: its disk has to be made (again) before anything else.
    Prepare,
    /// No member: ask for a ticket.
    Join,
    /// A member after a reboot: its disk waits for its key.
    Rejoin,
    /// A member in the boot in which it was locked: start what makes it one.
    Member {
        /// It was interrupted before the token said so: write it.
        unmarked: bool,
    },
    /// It was interrupted after its lock and before it was a member. In this boot it never will be one: mark the disk for reset and reboot.
    Interrupted,
    /// Nothing can be done but to report it.
    Blocked(&'static str),
}

const PCR_OF_OTHERS: &str = "the lock PCR was extended before this host locked itself: something else measures into it; choose another PCR \
     (attestation.lock_pcr, and the same in the policy), or give its value before the lock (attestation.lock_before)";
const RECORD_LOST: &str =
    "the host is locked and its state disk is that of a member, but node_state.json on it is missing or says otherwise";

/// Decides. `record`: that of the disk, if it is open and has one.
#[must_use]
pub(crate) fn decide(locked: bool, disk: DiskFound, record: Option<&NodeRecord>) -> Decision {
    let progress = record.map(|record| record.progress);
    let DiskFound::Ours { mark, open, .. } = disk else {
        return if locked { Decision::Blocked(PCR_OF_OTHERS) } else { Decision::Prepare };
    };
    match (locked, mark, progress) {
        (true, Mark::Reset, _) | (true, Mark::New, Some(Progress::Joining)) => Decision::Interrupted,
        (true, Mark::New, Some(Progress::Member)) => Decision::Member { unmarked: true },
        (true, Mark::Initialised, Some(Progress::Member)) => Decision::Member { unmarked: false },
        (true, Mark::Initialised, _) if open => Decision::Blocked(RECORD_LOST),
        (true, Mark::New | Mark::Initialised, _) => Decision::Blocked(PCR_OF_OTHERS),
        (false, Mark::Initialised, _) => Decision::Rejoin,
        (false, Mark::New, None | Some(Progress::Joining)) if open => Decision::Join,
        // It never became a member's disk, or is not one any longer.
        (false, Mark::New | Mark::Reset, _) => Decision::Prepare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use join_protocol::terms::Role;
    use uuid::Uuid;

    fn ours(mark: Mark, open: bool) -> DiskFound {
        DiskFound::Ours { uuid: Uuid::from_u128(1), mark, open, generation: None, second_key: None }
    }

    fn record(progress: Progress) -> NodeRecord {
        NodeRecord::new(progress, Uuid::from_u128(2), Role::Worker, "edge-1", &[1; 32])
    }

    #[test]
    fn pcr_disk_and_record_decide() {
        let (joining, member) = (record(Progress::Joining), record(Progress::Member));
        let (others, lost) = (Decision::Blocked(PCR_OF_OTHERS), Decision::Blocked(RECORD_LOST));
        let table = [
            (false, DiskFound::Blank, None, Decision::Prepare),
            (false, ours(Mark::New, true), None, Decision::Join),
            (false, ours(Mark::New, false), None, Decision::Prepare),
            // Between record and lock.
            (false, ours(Mark::New, true), Some(&joining), Decision::Join),
            (false, ours(Mark::New, true), Some(&member), Decision::Prepare),
            (false, ours(Mark::Reset, true), None, Decision::Prepare),
            (false, ours(Mark::Reset, false), None, Decision::Prepare),
            (false, ours(Mark::Initialised, false), None, Decision::Rejoin),
            (false, ours(Mark::Initialised, true), Some(&member), Decision::Rejoin),
            (true, DiskFound::Blank, None, others),
            (true, ours(Mark::New, true), None, others),
            (true, ours(Mark::New, true), Some(&joining), Decision::Interrupted),
            (true, ours(Mark::New, true), Some(&member), Decision::Member { unmarked: true }),
            (true, ours(Mark::Reset, true), Some(&member), Decision::Interrupted),
            (true, ours(Mark::Reset, false), None, Decision::Interrupted),
            (true, ours(Mark::Initialised, true), Some(&member), Decision::Member { unmarked: false }),
            (true, ours(Mark::Initialised, true), Some(&joining), lost),
            (true, ours(Mark::Initialised, true), None, lost),
            (true, ours(Mark::Initialised, false), None, others),
        ];
        for (locked, disk, record, wanted) in table {
            assert_eq!(decide(locked, disk, record), wanted, "{locked} {disk:?} {record:?}");
        }
    }

    #[test]
    fn a_members_disk_is_never_formatted_again_nor_marked_for_it() {
        for locked in [false, true] {
            for open in [false, true] {
                for record in [None, Some(&record(Progress::Joining)), Some(&record(Progress::Member))] {
                    let decision = decide(locked, ours(Mark::Initialised, open), record);
                    let destroys = matches!(decision, Decision::Prepare | Decision::Interrupted);
                    assert!(!destroys, "{locked} {open} {record:?}: {decision:?}");
                }
            }
        }
    }

    #[test]
    fn a_pcr_that_others_extend_never_leads_to_a_reboot() {
        for disk in [DiskFound::Blank, ours(Mark::New, true), ours(Mark::New, false), ours(Mark::Initialised, false)] {
            assert!(matches!(decide(true, disk, None), Decision::Blocked(_)), "{disk:?}");
        }
    }
}
