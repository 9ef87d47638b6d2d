//! Finds the nodes of volumes by watches of cluster-scoped kinds. An operator without permission to read these kinds
//! works without that knowledge.

use std::{sync::Arc, time::Duration};

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

use super::{access_modes, volume_nodes};
use crate::{
    controller::stores::{Feed, Watchable, Watched, slim, watched},
    queue::turns::Limits,
    telemetry::probes::Health,
};

/// How long the controller waits for the first lists when it starts.
const PATIENCE: Duration = Duration::from_secs(5);

/// The objects that tell the nodes of volumes, as far as the watches have reported them.
pub struct Volumes {
    volumes: Watched<PersistentVolume>,
    attachments: Watched<VolumeAttachment>,
}

/// The feeds that keep [`Volumes`] up to date.
#[derive(Default)]
pub struct VolumeFeeds {
    /// The feed of PersistentVolumes; `None` if nothing depends on them, or they may not be read.
    volumes: Option<Feed<PersistentVolume>>,
    /// The feed of VolumeAttachments; `None` if they may not be read.
    attachments: Option<Feed<VolumeAttachment>>,
}

/// Creates empty stores, and feeds for the kinds that these limits depend on. An operator that is confined to
/// namespaces first checks which kinds it may list.
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
    K: Watchable + Resource<Scope = ClusterResourceScope>,
{
    let listed = Api::<K>::all(client.clone()).list_metadata(&ListParams::default().limit(1)).await;
    if let Err(error) = &listed {
        tracing::info!(error = contract::chain(error), "{} are not read", K::plural(&()));
    }
    listed.is_ok()
}

impl Volumes {
    /// Waits a few seconds at most for the first lists of the watched kinds, so that the first decisions know the nodes
    /// of volumes.
    pub async fn await_first(&self) {
        // A store without a feed never gets a list: waiting for it fails at once, which is ignored.
        let both = future::join(self.volumes.catch_up(""), self.attachments.catch_up(""));
        if tokio::time::timeout(PATIENCE, both).await.is_err() {
            tracing::warn!("where volumes are is not known yet: see the rights in the chart's files/rules");
        }
    }

    /// Returns the node of a claim's volume: the one that the volume is tied to, or else the one that it is attached
    /// to.
    pub fn node_of(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let name = claim.spec.as_ref()?.volume_name.as_deref()?;
        let volume = self.volumes.store().get(&ObjectRef::new(name));
        let tied = volume.as_ref().and_then(|volume| volume_nodes::tied_to(volume)).map(Into::into);
        tied.or_else(|| self.attached_to(claim))
    }

    /// Returns the node that the volume of a claim is attached to, if it can be mounted on one node at a time.
    pub fn attached_to(&self, claim: &PersistentVolumeClaim) -> Option<String> {
        let name = claim.spec.as_ref()?.volume_name.as_deref().filter(|_| access_modes::ties(claim))?;
        let attachments = self.attachments.state();
        volume_nodes::attached_to(name, attachments.iter().map(|it| &**it)).map(Into::into)
    }
}

impl VolumeFeeds {
    /// Returns the changes of the watched kinds. The stores are up to date as far as these streams are polled.
    pub fn changes(
        self,
        client: &Client,
        health: &Arc<Health>,
    ) -> Vec<BoxStream<'static, watcher::Result<()>>> {
        let volumes = self.volumes.map(|feed| changes(client, health, feed, slim_volume));
        let attachments = self.attachments.map(|feed| changes(client, health, feed, slim));
        volumes.into_iter().chain(attachments).collect()
    }
}

fn changes<K>(
    client: &Client,
    health: &Arc<Health>,
    feed: Feed<K>,
    slim: fn(K) -> K,
) -> BoxStream<'static, watcher::Result<()>>
where
    K: Watchable + Resource<Scope = ClusterResourceScope>,
{
    feed.follow(|_| Api::all(client.clone()), "", slim, health).map_ok(drop).boxed()
}

/// Drops the fields of a PersistentVolume that the controller never reads.
fn slim_volume(volume: PersistentVolume) -> PersistentVolume {
    let mut volume = slim(volume);
    let node_affinity = volume.spec.take().and_then(|spec| spec.node_affinity);
    volume.spec = Some(PersistentVolumeSpec { node_affinity, ..PersistentVolumeSpec::default() });
    volume
}
