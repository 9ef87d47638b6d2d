//! Helpers of the end-to-end tests.
//!
//! Two kinds of tests use them. The tests in `tests/apiserver/` start a real etcd, kube-apiserver and Job controller
//! ([`apiserver`]) and simulate the kubelet ([`kubelet`]), so a test can script time and faults. The tests in
//! `tests/kind/` use the kind cluster that `e2e/run` starts ([`cluster`]).
//!
//! Both handle SyncJobs as users do, as manifests and JSON; no code of the operator is linked in.

pub mod apiserver;
pub mod clock;
pub mod cluster;
pub mod csi;
pub mod cut;
pub mod diagnosis;
pub mod disk;
pub mod gitops;
pub mod kubectl;
pub mod kubelet;
pub mod load;
pub mod own_namespace;
pub mod played_runs;
pub mod programs;
pub mod report;
pub mod scripted;
pub mod supervised;
pub mod syncjob;
pub mod tree;
pub mod tutorial;
pub mod volume;
pub mod wait;
pub mod witness;
