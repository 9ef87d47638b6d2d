//! The operator: see `operator/doc/design.md`.

pub mod api;
