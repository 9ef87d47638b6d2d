//! The operator: see `operator/doc/design.md`.
