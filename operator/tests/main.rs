//! Tests of the manifests and documents beside the operator, and of its program without a cluster.
//!
//! All tests are in one program, because each program would link the whole operator again; there is one module per
//! subject.

#![allow(clippy::unwrap_used)] // clippy does not take the helpers of tests for tests

mod argocd;
mod book;
mod krew;
mod manifests;
mod monitoring;
mod namespaces;
mod run;
mod runbook;
mod shards;
mod states;
