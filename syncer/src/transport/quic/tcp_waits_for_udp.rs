//! Decides how long UDP may stay without an answer before TCP, or the stream of a command, is tried beside it.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

/// How long UDP may stay without an answer before a stream is tried beside it.
const HEAD_START: Duration = Duration::from_millis(300);

/// Waits until a stream is tried beside UDP: UDP has had its time, and the present attempt has not `answered`. One with
/// an answer may still fail.
pub(super) async fn until_udp_has_no_answer(answered: &watch::Sender<bool>) {
    sleep(HEAD_START).await;
    let _ = answered.subscribe().wait_for(|answered| !answered).await;
}
