//! What happens in every factory: power fails, clocks are wrong, the broker is away.

use e2e::joining::CLUSTER;
use lab::image::Uki;
use lab::machine::{Firmware, Machine};
use serde_json::Value;

use crate::factory::{Factory, assert_locked, assert_runs_on_its_disk, until_locked};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_member_whose_power_was_cut_comes_back() {
    let factory = Factory::start("power cut", Firmware::Plain).await;
    let mut machine = factory.member("cell-2").await;
    machine.power_cut();
    machine.power_on(&factory.uki, None);
    factory.back(&machine).await;
    // What was written once, when it joined, and synced by no program of Kubernetes.
    assert_eq!(machine.ssh("cat /var/lib/rancher/k3s/joined"), "once");
    assert_eq!(machine.ssh("cat /var/lib/rancher/k3s/calls"), "k3s agent\nk3s agent");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_member_whose_clock_was_set_back_stays_locked_and_comes_back_when_the_clock_is_right() {
    let factory = Factory::start("clock set back", Firmware::Plain).await;
    let mut machine = factory.member("cell-2").await;
    machine.shut_down();
    // As of a board whose battery is empty. systemd sets it forward, to the time at which systemd was built.
    machine.power_on(&factory.uki, Some("2020-01-01T00:00:00"));
    factory.say(&format!("its clock says {}", machine.ssh("date -u +%FT%TZ")));
    // The join service's certificate begins later.
    machine.until_journal("miss the time", |text| text.contains("set the clock"));
    assert_locked(&machine);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let _ = machine.ssh(&format!("date -u -s @{now}"));
    factory.back(&machine).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_member_that_boots_without_its_broker_waits_with_a_closed_disk_and_comes_back_with_it() {
    let mut factory = Factory::start("broker away", Firmware::Plain).await;
    let mut machine = factory.member("cell-2").await;
    machine.shut_down();
    factory.site.broker.kill();
    machine.power_on(&factory.uki, None);
    machine.until_journal("miss its broker", |text| text.contains("Connection refused"));
    assert_locked(&machine);
    factory.say("the machine waits, its disk is closed");
    factory.site.broker.restart();
    factory.back(&machine).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes; make lab"]
async fn a_member_without_a_join_service_comes_back_by_its_tpm_and_with_another_image_once_it_was_renewed() {
    let mut factory = Factory::start("no join service", Firmware::Plain).await;
    factory.has_local_unlock = true;
    let mut machine = factory.member("cell-2").await;
    machine.until("have a second key", "cryptsetup luksDump /dev/disk/by-id/virtio-state", |text| {
        text.contains("sparkfleet-tpm2")
    });
    machine.power_cut();
    factory.site.broker.kill();
    machine.power_on(&factory.uki, None);
    until_locked(&machine);
    assert_runs_on_its_disk(&machine);
    factory.say("the machine is back, and no service answered it");
    factory.site.broker.restart();
    factory.host(&machine, "renewed again", |row| row["state"] == "member" && row["kind"] == "renew").await;

    let other = factory.another_image();
    machine.shut_down();
    factory.site.broker.kill();
    machine.power_on(&other, None);
    machine.until_journal("be given nothing", |text| text.contains("the second key is not given out: PCR"));
    assert_locked(&machine);
    factory.say("with another image the TPM gives nothing out");

    // What is executed is judged from now on, so the second key is sealed to other PCRs.
    machine.power_cut();
    factory.site.broker.restart();
    list_image(&factory, &factory.uki).await;
    machine.power_on(&factory.uki, None);
    factory.back(&machine).await;
    values_of_images(&machine, 1);
    // The new image is listed, and the host is renewed before it boots it.
    let revision = list_image(&factory, &other).await;
    let _ = machine.ssh("systemctl start sparkfleet-bootstrapper-renew");
    let is_renewed = |row: &Value| row["kind"] == "renew" && row["policy_revision"] == revision;
    factory.host(&machine, "renewed by the new policy", is_renewed).await;
    values_of_images(&machine, 2);
    machine.shut_down();
    factory.site.broker.kill();
    machine.power_on(&other, None);
    until_locked(&machine);
    assert_runs_on_its_disk(&machine);
    assert!(machine.ssh("cat /proc/cmdline").contains("another.word=1"));
    factory.say("the machine is back with the new image, and no service answered it");
}

/// Judges by the events of hosts, and admits those that have booted this image. Gives the revision of the policy.
async fn list_image(factory: &Factory, image: &Uki) -> Value {
    let file = image.file.display().to_string();
    let written = factory.site.cli.json(&["policy", "from-image", CLUSTER, &file, "--unpin"]).await;
    factory.site.agree(&written).await;
    written["revision"].clone()
}

/// Waits until the TPM of a machine gives the second key out for so many images.
fn values_of_images(machine: &Machine, count: usize) {
    let dump = "cryptsetup luksDump --dump-json-metadata /dev/disk/by-id/virtio-state";
    machine.until("know the values of its images", dump, |text| {
        let header: Value = serde_json::from_str(text).unwrap_or_default();
        let values = &header["tokens"]["1"]["registers"];
        [4, 9].iter().all(|pcr: &u8| values[pcr.to_string()].as_array().is_some_and(|all| all.len() == count))
    });
}
