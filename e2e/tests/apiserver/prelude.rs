//! What nearly every test of this program uses.

pub(crate) use contract::{Report, Side};
pub(crate) use e2e::{
    cut::Cut,
    kubelet::Play,
    programs,
    report::{bad_report, good_report},
    scripted::{PATIENCE, Stage},
    syncjob, wait,
};
pub(crate) use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
pub(crate) use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
pub(crate) use serde_json::{Value, json};
