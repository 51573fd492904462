//! From power-on to the member, and back after power was away.

use lab::machine::Firmware;
use serde_json::json;

use crate::factory::{Factory, assert_outside, assert_runs_on_its_disk};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_machine_is_approved_joins_on_an_encrypted_disk_and_rejoins_after_a_power_cycle() {
    let factory = Factory::start("power-on", Firmware::Plain).await;
    let mut machine = factory.machine("cell-2");
    factory.set_policy(&[]).await;
    machine.power_on(&factory.uki, None);

    // It booted what was predicted, but its endorsement key is not enrolled.
    let row = factory.host(&machine, "pending", |row| row["state"] == "pending").await;
    assert_eq!((&row["variant"], &row["verdict"]), (&json!("tpm2"), &json!("approval-pending")), "{row:#}");
    assert_eq!(row["registers"]["11"], factory.uki.pcr_11.as_str(), "{row:#}");
    assert_eq!(machine.pcr(11), factory.uki.pcr_11);
    assert_outside(&machine);
    factory.capture("cell-2").await;
    let approved = factory.site.cli.json(&["host", "approve", "cell-2"]).await;
    factory.site.agree(&approved).await;

    factory.host(&machine, "a member", |row| row["state"] == "member" && row["kind"] == "join").await;
    assert_runs_on_its_disk(&machine);
    assert_eq!(factory.site.tokens(), 0, "a member needs none any longer");

    machine.shut_down();
    factory.say("off");
    machine.power_on(&factory.uki, None);
    factory.back(&machine).await;
    let calls = machine.ssh("cat /var/lib/rancher/k3s/calls");
    assert_eq!(calls.lines().count(), 2, "what Kubernetes wrote before is there: {calls}");
}
