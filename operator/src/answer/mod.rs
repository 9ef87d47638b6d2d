//! Answers a user of `kubectl volferry browse` and `get` from a pod: what a command prints crosses the user's attached
//! connection, which ends when the pod does and may then lose the last bytes. So the output is sent in frames, the last
//! of which has the command's exit status, and the process stays until the user has read it.

pub mod frames;
pub mod process;

pub use process::AnswerArgs;
