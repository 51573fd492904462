//! The git server's copies, and what users have pushed.

use cluster_manager_contract::SetupState;
use configdb_schema::known::repository::HELM_CHARTS;

use crate::fleet::git_server::GitServer;
use crate::invariants::reports::cluster_devices;
use crate::model::checks::Violation;
use crate::model::git::commit;
use crate::model::role::Role;
use crate::world::World;

/// A push whose user knows that it was taken is in its repository, whatever was killed meanwhile.
pub(crate) fn pushed_is_kept(world: &mut World) -> Result<(), Violation> {
    if !world.with_git || !world.steps.is_multiple_of(16) {
        return Ok(());
    }
    let lost = world.git.lost_push();
    lost.map_or(Ok(()), |lost| {
        Err(Violation::new("pushed-is-kept", format!("the cluster manager's disk has lost {lost}")))
    })
}

/// Every copy is what its repository is, and is served where that is open.
pub(crate) fn copies_equal_their_repositories(world: &World) -> Result<(), Violation> {
    let Some(server) = world.process_of(&Role::GitServer).map(|id| &world.processes[&id]) else { return Ok(()) };
    let fault = |detail: String| Err(Violation::new("copy-equals-repository", detail));
    let program = server.program.as_ref().and_then(|program| program.as_any().downcast_ref::<GitServer>());
    if let Some(waiting) = program.map(GitServer::waiting).filter(|waiting| *waiting > 0) {
        return fault(format!("{waiting} copies are not as they shall be"));
    }
    let own = world.git.repositories.iter().map(|(uuid, repository)| (*uuid, repository));
    let all = own.chain(world.git.charts.iter().map(|charts| (HELM_CHARTS, charts)));
    for (uuid, repository) in all.filter(|(_, repository)| repository.is_open) {
        let copy =
            server.disk.with_copies(|copies| copies.served(uuid).map(|(place, main)| (place.path.clone(), main)));
        let wanted = (repository.path.clone(), Some(commit(repository.commits)));
        if copy.as_ref() != Some(&wanted) {
            return fault(format!("{uuid} is {wanted:?}, and its copy {copy:?}"));
        }
    }
    let devices = cluster_devices(world);
    // What ConfigDB wants and the disk has lost stays as it is.
    let is_wanted =
        |uuid: uuid::Uuid| devices.get(&uuid).is_some_and(|device| device.setup.state == SetupState::Refused);
    let is_open = |uuid: uuid::Uuid| world.git.repository(uuid).is_some_and(|repository| repository.is_open);
    let extra = server.disk.with_copies(|copies| copies.open().find(|uuid| !is_open(*uuid) && !is_wanted(*uuid)));
    extra.map_or(Ok(()), |uuid| fault(format!("{uuid} is closed, and its copy is served")))
}
