//! What nearly every test of this program uses.

use std::process::Output;

use tokio::{process::Child, time};

pub(crate) use contract::{Report, Side};
pub(crate) use e2e::{
    cut::{self, Cut, cut_writes, cuts_before},
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

/// Returns what a command printed, which has to end within [`PATIENCE`].
pub(crate) async fn output_of(child: Child) -> Output {
    time::timeout(PATIENCE, child.wait_with_output()).await.expect("the command ends").unwrap()
}
