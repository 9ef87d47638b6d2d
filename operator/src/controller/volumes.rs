//! Where volumes are, by watches of kinds that belong to no namespace. An operator without the right to read them does
//! without.

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, future, stream::BoxStream};
use k8s_openapi::{
    ClusterResourceScope,
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec},
        storage::v1::VolumeAttachment,
    },
};
use kube::{
    Api, Client, Resource,
    api::ListParams,
    runtime::{reflector::ObjectRef, watcher},
};
use serde::de::DeserializeOwned;

use super::watched::{Feed, Watched, slim, watched};
use crate::model::{nodes, placement, queue::Limits};

/// How long a start waits for the first lists.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where volumes are, as far as has been heard.
pub struct Volumes {
    volumes: Watched<PersistentVolume>,
    attachments: Watched<VolumeAttachment>,
}

/// What keeps [`Volumes`] up to date.
#[derive(Default)]
pub struct VolumeFeeds {
    /// The PersistentVolumes; `None`: nobody asks for them, or they may not be read.
    volumes: Option<Feed<PersistentVolume>>,
    /// The VolumeAttachments; `None`: they may not be read.
    attachments: Option<Feed<VolumeAttachment>>,
}

/// Makes empty stores, and feeds for the kinds that are of use with these limits. One that is confined to a namespace
/// asks first what it may read.
pub async fn volumes(client: &Client, is_confined: bool, limits: Limits) -> (Volumes, VolumeFeeds) {
    let ((volumes, volume_feed), (attachments, attachment_feed)) = (watched(&[]), watched(&[]));
    let has_volumes = limits.node > 0 && (!is_confined || may_list::<PersistentVolume>(client).await);
    let has_attachments = !is_confined || may_list::<VolumeAttachment>(client).await;
    let feeds = VolumeFeeds {
        volumes: has_volumes.then_some(volume_feed),
        attachments: has_attachments.then_some(attachment_feed),
    };
    (Volumes { volumes, attachments }, feeds)
}

async fn may_list<K>(client: &Client) -> bool
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let listed = Api::<K>::all(client.clone()).list_metadata(&ListParams::default().limit(1)).await;
    if let Err(error) = &listed {
        tracing::info!(error = crate::telemetry::chain(error), "{} are not read", K::plural(&()));
    }
    listed.is_ok()
}

impl Volumes {
    /// Waits for the first lists of what is watched, for a moment at most.
    pub async fn await_first(&self) {
        // A store without a feed is as ready as it will be.
        let both = future::join(self.volumes.catch_up(), self.attachments.catch_up());
        if tokio::time::timeout(PATIENCE, both).await.is_err() {
            tracing::warn!("where volumes are is not known yet: see the rights in the chart's files/rules");
        }
    }

    /// Returns the node that the volume of a claim is on: the one that it is tied to, or else the one that it is
    /// attached to.
    pub fn node_of(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let name = claim.spec.as_ref()?.volume_name.as_deref()?;
        let volume = self.volumes.store().get(&ObjectRef::new(name));
        let tied = volume.as_ref().and_then(|volume| nodes::tied_to(volume)).map(Into::into);
        tied.or_else(|| self.attached_to(claim))
    }

    /// Returns the node that the volume of a claim is attached to, if it can be mounted on one node at a time.
    pub fn attached_to(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|_| placement::ties(claim))?;
        let attachments = self.attachments.state();
        nodes::attached_to(name, attachments.iter().map(|it| &**it)).map(Into::into)
    }
}

impl VolumeFeeds {
    /// The changes of what is watched, which keep the stores up to date as they are taken.
    pub fn changes(self, client: &Client) -> Vec<BoxStream<'static, watcher::Result<()>>> {
        let volumes = self.volumes.map(|feed| changes(client, feed, slim_volume));
        let attachments = self.attachments.map(|feed| changes(client, feed, slim));
        volumes.into_iter().chain(attachments).collect()
    }
}

fn changes<K>(client: &Client, feed: Feed<K>, slim: fn(&mut K)) -> BoxStream<'static, watcher::Result<()>>
where
    K: Resource<Scope = ClusterResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    feed.follow(|_| Api::all(client.clone()), "", slim).map_ok(drop).boxed()
}

/// Drops from a PersistentVolume what nobody here reads of it.
fn slim_volume(volume: &mut PersistentVolume) {
    slim(volume);
    let node_affinity = volume.spec.take().and_then(|spec| spec.node_affinity);
    volume.spec = Some(PersistentVolumeSpec { node_affinity, ..PersistentVolumeSpec::default() });
}
