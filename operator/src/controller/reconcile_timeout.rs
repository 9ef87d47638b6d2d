//! How long one reconciliation may take.

use std::time::Duration;

/// The maximum duration of one reconciliation. Without it, a connection that was lost silently would block its job for
/// ever.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
