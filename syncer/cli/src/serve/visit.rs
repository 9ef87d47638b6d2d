//! One peer of a service, from its request to the end of its session.

use std::time::Duration;

use contract::{FolderAccess, FolderRequest, ServedRun};
use syncer::{
    path::RelPath,
    root::TreeLocation,
    session::{HistoryOffer, Outcome, ServiceLimits, ServiceVisit, SessionError, check_request},
};

use super::{
    folder_queue::Turns,
    readers_params::readers_params,
    revoked_sessions::Entered,
    service_state::{Admitted, ServiceState, shown},
};
use crate::{
    flags::folder_below,
    run_log::{self, RUNS},
};

/// How often a peer that waits is looked at, and may be told its place.
const LOOK: Duration = Duration::from_millis(250);

/// Serves a peer: checks its right, waits for its turn, and runs.
pub(super) fn serve(state: &ServiceState, number: u64, visit: ServiceVisit, request: FolderRequest) {
    match admit(state, number, &visit, &request) {
        Ok(visitor) => attend(state, visit, request, visitor),
        Err(error) => {
            // It can be large, and the peer may take its time to hear the answer.
            drop(request);
            let outcome = visit.refuse(error, &Default::default());
            state.refused.add(outcome.peer, &outcome.report.message);
        }
    }
}

/// A peer that may use a folder, and the path that it asks for there.
struct Visitor<'a> {
    admitted: Admitted<'a>,
    below: RelPath,
}

fn admit<'a>(
    state: &'a ServiceState,
    number: u64,
    visit: &ServiceVisit,
    request: &FolderRequest,
) -> Result<Visitor<'a>, SessionError> {
    let admitted = state.enter(number, visit.peer(), request)?;
    // The peer's own program has checked it.
    let wrong = || SessionError::NotAllowed {
        peer: admitted.peer.clone(),
        access: "use",
        folder: shown(&format!("{}/{}", request.folder, request.path)),
    };
    let below = folder_below(&request.path).map_err(|_| wrong())?;
    check_request(&admitted.served.demands, request, &below)?;
    let at = admitted.served.subfolder.clone();
    let below = below.names().try_fold(at, |at, name| at.join(name)).map_err(|_| wrong())?;
    Ok(Visitor { admitted, below })
}

fn attend(state: &ServiceState, mut visit: ServiceVisit, request: FolderRequest, visitor: Visitor<'_>) {
    let Visitor { admitted, below } = visitor;
    let Admitted { served, peer, session: Entered { monitor, .. } } = &admitted;
    let (folder, access) = (request.folder.clone(), request.access);
    let _span = tracing::info_span!(target: RUNS, "serve", folder, peer).entered();
    let reads = access == FolderAccess::Read;
    let Some(turn) = Turns::join(&state.queue(&folder), peer, reads, served.queue) else {
        drop(request);
        let outcome = visit.refuse(SessionError::QueueFull(served.queue), monitor);
        return state.refused.add(outcome.peer, &outcome.report.message);
    };
    while let Some(answer) = turn.busy() {
        if visit.is_gone() || monitor.cancelled() {
            return visit.send_away();
        }
        visit.send_answer(answer);
        turn.wait(LOOK);
    }
    // The rules may have changed since; a change from now on cancels the run.
    let Some(served) = state.rules().config.folders.get(&folder).cloned() else { return visit.send_away() };
    // The turn may have come from a run that ends because the service does.
    if monitor.cancelled() || state.is_stopping() {
        return visit.send_away();
    }
    let place = TreeLocation { trusted: served.path.clone(), below };
    let told = |outcome: &Outcome| {
        let outcome = &admitted.session.explained(outcome);
        state.counts.add(&folder, access, outcome);
        run_log::log(outcome);
        state.record(|| ServedRun {
            peer: peer.clone(),
            folder: folder.clone(),
            access,
            report: outcome.report.clone(),
        });
    };
    let limits = ServiceLimits { bandwidth: served.bandwidth_limit, silence: served.idle_timeout };
    match (access, &request.history) {
        (FolderAccess::Write, Some(history)) => {
            let offer = HistoryOffer { request: history, source_id: request.params.source_id, by: peer };
            told(&visit.take_history(&place, offer, &served.demands, limits, monitor));
        }
        (FolderAccess::Read, Some(_)) => told(&visit.offer_history(&place, limits, monitor)),
        (FolderAccess::Write, None) => {
            visit.receive(&place, &served.demands, limits, monitor, &mut |it| told(it));
        }
        (FolderAccess::Read, None) => {
            told(&visit.send(place, &readers_params(request, &served), served.idle_timeout, monitor));
        }
    }
}
