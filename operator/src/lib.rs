//! The operator: see `operator/doc/design.md`.

pub mod agent;
pub mod answer;
pub mod api;
pub mod controller;
pub mod events;
pub mod fault;
pub mod health;
pub mod hold;
pub mod human;
pub mod launch;
pub mod lease;
pub mod metrics;
pub mod model;
pub mod names;
pub mod own_key;
pub mod plugin;
pub mod populate;
pub mod ready;
pub mod resources;
pub mod runbook;
pub mod schedule;
pub mod service;
pub mod signals;
pub mod stages;
pub mod telemetry;
pub mod traces;
