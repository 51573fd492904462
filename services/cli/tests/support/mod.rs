//! What the tests stand on: commands as processes, a factory that runs, and fleets that someone made up.

pub mod factory;
pub mod made_up;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../../../../sparkplug/mqtt/tests/support/mosquitto.rs"]
pub mod mosquitto;
pub mod program;
