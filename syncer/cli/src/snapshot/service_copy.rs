//! `volferry snapshot copy` with a folder of a service.

use std::{path::Path, sync::Arc};

use contract::{CopySelection, FolderAccess, FolderRequest, HistoryRequest, RunParams, Side};
use syncer::{
    monitor::Monitor,
    root::TreeLocation,
    session::{LinkMode, LinkOptions, SessionError, offer_to_service, take_from_service},
    snapshot::{
        SnapshotError,
        copy::{CopiedHistory, HistorySource},
    },
    source_id,
};

use super::{
    flags::CopyFlags,
    history_ends::{into, offering},
};
use crate::{
    flags::{CONNECT_TIMEOUT, folder_below},
    link_to_service::Asks,
    remote::place::ServicePlace,
    run::LinkError,
    screen::Screen,
    signals,
};

/// Copies from a service's folder.
pub(super) fn pull(
    flags: &CopyFlags,
    from: ServicePlace,
    to: &Path,
    selection: &CopySelection,
) -> Result<CopiedHistory, LinkError> {
    let monitor = monitor()?;
    let link = link(flags, from, FolderAccess::Read, selection, RunParams::default())?;
    let take = |source: &mut dyn HistorySource| into(to, source, selection, flags.wait_lock, &monitor);
    Ok(take_from_service(&link, &monitor, take)?)
}

/// Has a service copy into its folder.
pub(super) fn push(
    flags: &CopyFlags,
    from: &Path,
    to: ServicePlace,
    selection: &CopySelection,
) -> Result<CopiedHistory, LinkError> {
    let monitor = monitor()?;
    let params =
        RunParams { source_id: source_id::source_id(&TreeLocation::from(from)), ..RunParams::default() };
    let link = link(flags, to, FolderAccess::Write, selection, params)?;
    let offered = offering(from, |history| Ok(offer_to_service(&link, &monitor, history)));
    Ok(offered.map_err(SessionError::from)??)
}

/// Returns a monitor that signals stop, and that says that the service is busy.
fn monitor() -> Result<Arc<Monitor>, LinkError> {
    let screen = Arc::new(Screen::new(false));
    let busy = Arc::clone(&screen);
    let monitor =
        Monitor::default().with_waiting(move |answer| busy.say(&format!("the other end is {answer}\n")));
    let monitor = Arc::new(monitor);
    let failed =
        |source| SnapshotError::Io { operation: "start a thread for", path: "signals".into(), source };
    signals::pass_on(&monitor, &screen).map_err(|error| SessionError::from(failed(error)))?;
    Ok(monitor)
}

fn link(
    flags: &CopyFlags,
    place: ServicePlace,
    access: FolderAccess,
    selection: &CopySelection,
    params: RunParams,
) -> Result<LinkOptions, LinkError> {
    let invalid = |what: String| SessionError::from(SnapshotError::Invalid(what));
    if flags.shell.rsh.is_some() || flags.shell.remote_program.is_some() || flags.shell.bootstrap {
        let what = "a service is reached without ssh: leave --rsh, --remote-program and --bootstrap out";
        return Err(invalid(what.into()).into());
    }
    folder_below(&place.path).map_err(|why| invalid(format!("{}: {why}", place.address())))?;
    let (folder, path) = (place.folder.clone(), place.path.clone());
    let history = HistoryRequest { selection: selection.clone(), wait_seconds: flags.wait_lock };
    let (source_snapshot, paths) = Default::default();
    let request =
        FolderRequest { folder, path, access, params, source_snapshot, paths, history: Some(history) };
    let side = if access == FolderAccess::Read { Side::Sink } else { Side::Source };
    let asks = Asks {
        place,
        mode: LinkMode::Auto,
        side,
        identity: flags.identity.clone(),
        service_key: flags.service_key,
        connect_timeout: flags.shell.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
        request,
    };
    Ok(asks.link()?)
}
