//! Helpers of the end-to-end tests.
//!
//! Two kinds of test stand on them. Those in `tests/apiserver/` start a real etcd, kube-apiserver and Job controller
//! ([`apiserver`]) and play the kubelet themselves ([`kubelet`]), so that time and faults can be scripted. Those in
//! `tests/kind/` use the kind cluster that `e2e/run` brings up ([`cluster`]).
//!
//! Both see SyncJobs as their users do, as manifests and JSON; nothing of the operator is linked in.

pub mod apiserver;
pub mod cluster;
pub mod cut;
pub mod diagnosis;
pub mod disk;
pub mod kubectl;
pub mod kubelet;
pub mod load;
pub mod programs;
pub mod report;
pub mod scripted;
pub mod supervised;
pub mod syncjob;
pub mod tree;
pub mod volume;
pub mod wait;
pub mod witness;
