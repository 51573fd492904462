//! Machines that are not what the policy wants: their disks stay closed, and nothing of Kubernetes runs.

use lab::machine::{Firmware, Machine};
use serde_json::Value;

use crate::factory::{Factory, assert_locked};

/// What `host list` says of a machine that was refused for that reason, and the text that an operator reads.
async fn refused(factory: &Factory, machine: &Machine, verdict: &str) -> (Value, String) {
    let row = factory.host(machine, &format!("refused: {verdict}"), |row| row["verdict"] == verdict).await;
    let detail = row["detail"].as_str().unwrap_or_default().to_owned();
    factory.say(&detail);
    (row, detail)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_member_that_boots_another_image_stays_locked_out_until_an_operator_captures_it() {
    let factory = Factory::start("another image", Firmware::Plain).await;
    let mut machine = factory.member("cell-2").await;
    machine.shut_down();
    let other = factory.another_image();
    machine.power_on(&other, None);

    let (row, detail) = refused(&factory, &machine, "measurement").await;
    // The image, what the loader hands to the kernel, and what systemd-stub measures; not the firmware's keys.
    for (pcr, differs) in [(4, true), (7, false), (9, true), (11, true)] {
        assert_eq!(detail.contains(&format!("PCR {pcr}: wanted")), differs, "{detail}");
    }
    assert_locked(&machine);
    assert_eq!(machine.pcr(11), other.pcr_11);

    let captured = factory.site.cli.json(&["policy", "capture", "cell-2", "--pcr", "4,9,11"]).await;
    factory.site.agree(&captured).await;
    factory.back(&machine).await;
    // Last, so that the rest is seen whatever the operator was shown.
    assert_eq!(row["state"], "locked-out", "an operator sees that the host is not in: {row:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_state_disk_in_another_machine_stays_closed_and_opens_again_in_its_own() {
    let factory = Factory::start("stolen disk", Firmware::Plain).await;
    let mut machine = factory.member("cell-2").await;
    machine.shut_down();
    // Of the same manufacturer, with the same image, in the same factory.
    let mut thief = factory.machine("cell-9");
    std::fs::copy(machine.state_disk(), thief.state_disk()).unwrap();
    thief.power_on(&factory.uki, None);

    let refused = |text: &str| text.contains("ek-not-enrolled") || text.contains("approval");
    thief.until_journal("log that it was refused", refused);
    factory.say(thief.journal().lines().rfind(|line| refused(line)).unwrap_or_default());
    assert_locked(&thief);
    let rows = factory.site.cli.json(&["host", "list"]).await;
    thief.power_cut();

    machine.power_on(&factory.uki, None);
    factory.back(&machine).await;
    // Last, so that the rest is seen whatever the operator was shown.
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["endorsement_key"] == thief.tpm().endorsement.as_str());
    assert!(row.is_some_and(|row| row["has_foreign_disk"] == true), "an operator sees who has the disk: {row:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_member_whose_tpm_was_cleared_stays_locked_out() {
    let factory = Factory::start("TPM cleared", Firmware::Plain).await;
    let mut machine = factory.member("cell-2").await;
    let _ = machine.ssh("tpm2_clear -Q");
    machine.shut_down();
    machine.power_on(&factory.uki, None);
    let (row, _) = refused(&factory, &machine, "counters-backwards").await;
    assert_locked(&machine);
    // Last, so that the rest is seen whatever the operator was shown.
    assert_eq!(row["state"], "locked-out", "an operator sees that the host is not in: {row:#}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn with_secure_boot_a_signed_image_joins_and_an_unsigned_one_does_not_start() {
    let factory = Factory::start("Secure Boot", Firmware::SecureBoot).await;
    let mut machine = factory.member("cell-2").await;
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    assert_eq!(machine.ssh(&format!("od -An -t u1 -j 4 -N 1 {variable} | tr -d ' '")), "1", "Secure Boot is on");
    machine.shut_down();

    let unsigned = factory.image.uki("unsigned", "", false);
    machine.power_on(&unsigned, None);
    machine.until_console("refuse the image", |text| {
        text.contains("Access Denied") || text.contains("Security Violation")
    });
    factory.say("the unsigned image was refused");
    assert!(!machine.console().contains("Linux version"), "{}", machine.console());
    machine.power_cut();

    machine.power_on(&factory.uki, None);
    factory.back(&machine).await;
}
