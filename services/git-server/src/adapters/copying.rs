//! Work on one copy, in the order in which nothing can be lost: the record, the objects, the references, the place at which it is served.

use git_hosting::client::Input;
use git_hosting::copies::{self, Applied, CopyError};
use service_runtime::atomic_file::AtomicFileError;

use super::store::{self, Store};
use crate::event::{CopyOutcome, CopyResult, CopyWork};

/// Does it.
pub async fn copy(store: Store, work: CopyWork) -> CopyResult {
    let (repository, version) = (work.desired.repository, work.desired.version);
    let mut result = CopyResult {
        repository,
        version,
        is_recorded: work.is_recorded,
        refs: copies::Refs::new(),
        is_served: false,
        outcome: CopyOutcome::Missing,
        pack_error: None,
    };
    if let Err(error) = change(&store, work, &mut result).await {
        result.outcome = CopyOutcome::Failed(error);
    }
    result.is_served = store.repositories.by_uuid(repository).is_some();
    let read = tokio::task::spawn_blocking(move || store.refs(repository)).await;
    match read.map_err(|error| error.to_string()).and_then(|read| read.map_err(|error| error.to_string())) {
        Ok(refs) => result.refs = refs,
        Err(error) => result.outcome = CopyOutcome::Failed(error),
    }
    result
}

async fn change(store: &Store, work: CopyWork, result: &mut CopyResult) -> Result<(), String> {
    let CopyWork { desired, is_recorded, packs, builds_on } = work;
    let (of_disk, wanted) = (store.clone(), desired.clone());
    let recorded = tokio::task::spawn_blocking(move || {
        if !is_recorded {
            of_disk.record(&wanted)?;
        }
        of_disk.set_password(&wanted);
        Ok::<_, AtomicFileError>(())
    });
    recorded.await.map_err(text)?.map_err(text)?;
    result.is_recorded = true;
    let Some(place) = desired.place.as_ref().map(store::place) else {
        let (repositories, repository) = (store.repositories.clone(), desired.repository);
        tokio::task::spawn_blocking(move || repositories.close(repository)).await.map_err(text)?.map_err(text)?;
        result.outcome = CopyOutcome::Applied;
        return Ok(());
    };
    let repositories = store.repositories.clone();
    let (repository, moved) = (desired.repository, place.clone());
    let made = tokio::task::spawn_blocking(move || {
        // Another name counts at once; what has never been whole is not served before it is.
        if repositories.by_uuid(repository).is_some() {
            repositories.serve(repository, &moved)?;
        }
        let directory = repositories.make(repository)?;
        let connectivity = copies::connectivity(&directory).map_err(CopyError::from)?;
        Ok::<_, CopyError>((directory, connectivity))
    });
    let (directory, connectivity) = made.await.map_err(text)?.map_err(text)?;
    for pack in packs {
        match copies::take_pack(&directory, builds_on, &store.scratches, Input::Bytes(pack.bytes())).await {
            Ok(()) => {}
            Err(CopyError::Pack(reason)) => {
                tracing::warn!(%repository, reason, "a pack is not taken");
                result.pack_error = Some(format!("a pack is not taken: {reason}"));
            }
            Err(error) => return Err(text(error)),
        }
    }
    match copies::apply(&directory, &desired.refs, connectivity).await.map_err(text)? {
        Applied::Missing => result.outcome = CopyOutcome::Missing,
        Applied::Done => {
            let repositories = store.repositories.clone();
            let opened = tokio::task::spawn_blocking(move || repositories.serve(repository, &place));
            opened.await.map_err(text)?.map_err(text)?;
            result.outcome = CopyOutcome::Applied;
        }
    }
    Ok(())
}

/// What went wrong, with its causes.
#[allow(clippy::needless_pass_by_value, reason = "it is used in map_err")]
fn text(error: impl std::error::Error + Send + Sync + 'static) -> String {
    format!("{:#}", anyhow::Error::new(error))
}
