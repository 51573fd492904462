//! The protocol holds within a small budget, and each fault that is seeded is found within it.

use model::fault::Fault;
use model::protocol::{Protocol, SETTLES};
use model::system::{Budget, NO_PRUNE, VERSION};
use stateright::{Checker, HasDiscoveries, Model};

#[test]
fn the_protocol_holds() {
    for budget in [Budget::SHORT, Budget::RESTORED_AGAIN] {
        let checker = Protocol::new(None, budget).checker().threads(2).spawn_bfs().join();
        checker.assert_properties();
        assert!(checker.unique_state_count() > 1_000, "{} states say little", checker.unique_state_count());
    }
}

#[test]
fn each_seeded_fault_has_a_counterexample() {
    for fault in Fault::ALL {
        let expected = match fault {
            Fault::ReportedBeforeStored => VERSION,
            Fault::EpochIgnored | Fault::ReportIgnored => SETTLES,
            _ => NO_PRUNE,
        };
        let budget = match fault {
            Fault::HastyDecision => Budget { writes: 1, status: 0, edge_crashes: 0, ..Budget::SHORT },
            Fault::BlindWriteBack | Fault::UnconditionalDecision => Budget::RESTORED_AGAIN,
            _ => Budget::SHORT,
        };
        let protocol = Protocol::new(Some(fault), budget);
        let wanted = HasDiscoveries::AnyOf([expected].into());
        let checker = protocol.checker().threads(2).finish_when(wanted).spawn_bfs().join();
        let path = checker.discovery(expected);
        assert!(path.is_some(), "{fault:?} does not break {expected}, but: {:?}", checker.discoveries().keys());
    }
}
