//! How long a pod waits for its user, who comes by `exec`. Pure.

/// How long the pod waits for its user, in seconds: for the first time, or after the connection was lost.
const IDLE_S: u32 = 600;

/// Returns the arguments of the first process of a pod whose user comes by `exec`.
pub(super) fn hold_args() -> Vec<String> {
    vec!["hold".into(), format!("--idle={IDLE_S}")]
}
