//! The controller of SyncJobs.
//!
//! [`reconcile`] takes one step with a SyncJob: [`dereference`] reads, [`validate`](crate::spec::validate) turns the
//! spec into a `ValidatedSyncJob`, [`plan`](crate::run::stages::plan) decides, [`build_try`](crate::pods::build_try)
//! determines the objects that the decision requires, [`apply`] and [`launch`] create them and
//! [`cleanup`](crate::pods::cleanup) deletes objects, [`bookkeeping`](crate::run::bookkeeping) keeps the SyncRuns, and
//! [`next_status`](crate::status::next_status) and [`announce`](crate::status::announce) make and write the status.
//! `operator/doc/design.md` lists the files that may talk to the API server or read the clock.

pub mod apply;
pub(crate) mod context;
pub mod dereference;
pub(crate) mod error;
pub(crate) mod last_heard_on_watch;
pub(crate) mod launch;
pub(crate) mod lookups;
pub(crate) mod owner_index;
pub(crate) mod pause_after_failure;
pub mod read;
pub mod recently_read;
pub(crate) mod reconcile;
pub(crate) mod reconcile_timeout;
pub mod serve;
pub mod stores;
pub(crate) mod view;
pub(crate) mod watch_health;
pub(crate) mod watches;
