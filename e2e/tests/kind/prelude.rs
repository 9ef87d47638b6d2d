//! What nearly every test of this program uses.

pub(crate) use contract::Work;
pub(crate) use e2e::{
    cluster::{PATIENCE, Sandbox},
    programs, syncjob,
    tree::{self, assert_same},
    volume::Volume,
    wait,
};
pub(crate) use kube::{
    Api,
    api::{DeleteParams, DynamicObject},
};
pub(crate) use serde_json::{Value, json};
