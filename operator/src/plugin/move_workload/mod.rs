//! `kubectl volferry move`: the claims of a StatefulSet or Deployment get volumes of another class under their old
//! names. A Secret remembers the stage, and each stage looks before it changes anything, so the command may be
//! killed at any point and run again. `operator/doc/design.md` has the stages.

mod copy_until_equal;
mod record;
mod rights;
mod steps;
mod survey;
mod swap_volumes;
mod wait_for_objects;
mod workload;
mod writers;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use self::{
    copy_until_equal::{Demands, Passes},
    record::{Kept, MoveRecord, MovedClaim, Records, Stage},
    swap_volumes::{MovedVolumes, VolumeSwap},
    wait_for_objects::Patience,
    workload::{Workload, manifest_of, replicas, state_of, template_classes, with_classes},
};
use super::{
    cluster::Cluster,
    error::PluginError,
    move_args::{MoveFlags, WorkloadKind},
    output,
};

/// Prints what a move would do, and does it with `--apply`.
pub(super) async fn run(cluster: &Cluster, flags: &MoveFlags) -> Result<(), PluginError> {
    let workload = Workload::new(cluster, &flags.workload);
    let records = Records::new(cluster, &flags.workload);
    let found = records.read(&flags.workload).await?;
    let mut kept = match (found, &flags.to_class) {
        (None, Some(class)) => {
            let record = survey::inspect(cluster, &workload, flags, class).await?;
            let notes = survey::notes(cluster, &record).await?;
            output::lines(&steps::plan(&record, !flags.no_verify))?;
            notes.iter().for_each(|note| output::complain(&format!("note: {note}")));
            if !flags.apply {
                return report_unchanged();
            }
            records.create(record).await?
        }
        (None, None) if flags.back || flags.forget => {
            return Err(PluginError::blocked(
                format!("no move of {} is recorded", flags.workload),
                "nothing is to be undone",
            ));
        }
        (None, None) => {
            return Err(PluginError::blocked(
                "the class is missing",
                format!(
                    "name it with --to-class; `kubectl get storageclass{}` lists them",
                    cluster.scope.cluster_flags()
                ),
            ));
        }
        (Some(mut kept), _) => {
            let is_turned = turn(&mut kept, flags)?;
            output::lines(&steps::rest(&kept.record, flags.forget, &cluster.flags()))?;
            if !flags.apply {
                return report_unchanged();
            }
            if is_turned {
                records.write(&mut kept).await?;
            }
            kept
        }
    };
    let patience = Patience(flags.timeout);
    let mover =
        Mover { cluster, flags, workload, records, volumes: MovedVolumes::new(cluster, patience), patience };
    if flags.forget { mover.forget(&kept.record).await } else { mover.go_on(&mut kept).await }
}

fn report_unchanged() -> Result<(), PluginError> {
    output::lines(&["Nothing has been changed. Add --apply to do it."])
}

/// Turns a move that has begun as the flags say; returns whether its record has changed.
fn turn(kept: &mut Kept, flags: &MoveFlags) -> Result<bool, PluginError> {
    let MoveRecord { class, stage, is_back, .. } = &kept.record;
    let is_other = flags.to_class.as_ref().is_some_and(|wanted| wanted != class);
    if is_other || (flags.to_class.is_some() && *is_back) {
        let why = format!("{} has a move to class {class} that has not been closed", flags.workload);
        return Err(PluginError::blocked(why, "close it with --forget, or with --back and then --forget"));
    }
    if flags.forget && *stage != Stage::Moved {
        let why = format!("the move of {} is at stage {stage:?}", flags.workload);
        return Err(PluginError::blocked(why, "finish it first: --apply goes on, --back goes back"));
    }
    let is_turned = flags.back && !is_back;
    if is_turned {
        let is_swapped = *stage >= Stage::Swap;
        kept.record.is_back = true;
        kept.record.stage = if is_swapped { Stage::Stop } else { Stage::Start };
    }
    Ok(is_turned)
}

/// Carries out the stages.
struct Mover<'a> {
    cluster: &'a Cluster,
    flags: &'a MoveFlags,
    workload: Workload<'a>,
    records: Records,
    volumes: MovedVolumes<'a>,
    patience: Patience,
}

impl Mover<'_> {
    async fn go_on(&self, kept: &mut Kept) -> Result<(), PluginError> {
        while kept.record.stage != Stage::Moved {
            self.compare_again_if_it_ran(kept).await?;
            output::complain(&format!("note: {}", steps::doing(&kept.record)));
            self.carry_out(kept).await?;
            let is_undone =
                kept.record.is_back && kept.record.stage == Stage::Start && !was_swapped(&kept.record);
            if is_undone {
                self.discard(&kept.record).await?;
                return output::lines(&["The workload runs as before; the copies are deleted."]);
            }
            kept.record.stage = kept.record.stage.next();
            self.records.write(kept).await?;
        }
        output::lines(&steps::end(&kept.record, &self.cluster.flags()))
    }

    async fn carry_out(&self, kept: &mut Kept) -> Result<(), PluginError> {
        match kept.record.stage {
            Stage::Copy => self.copy(&kept.record).await,
            Stage::Stop => self.stop(kept).await,
            Stage::Verify if kept.record.is_back => Ok(()),
            Stage::Verify => self.verify(kept).await,
            Stage::Swap => self.swap(kept).await,
            Stage::Template => self.template(kept).await,
            Stage::Start => self.start(&kept.record).await,
            Stage::Moved => Ok(()),
        }
    }

    async fn copy(&self, record: &MoveRecord) -> Result<(), PluginError> {
        let object = self.workload.existing().await?;
        let pods = survey::pods(self.cluster, &object.data).await?;
        if record.claims.iter().any(|claim| claim.has_mode("ReadWriteOncePod")) {
            // No other pod can read it while the workload runs.
            self.empty(record).await?;
        }
        self.passes(record, &pods).copy().await
    }

    async fn stop(&self, kept: &mut Kept) -> Result<(), PluginError> {
        if !kept.record.is_back {
            writers::check(self.cluster, &kept.record.claims).await?;
        }
        if self.workload.get().await?.is_none() && kept.record.manifest.is_some() {
            return self.until_free(&kept.record).await;
        }
        let replicas = replicas(&self.workload.existing().await?);
        if replicas > 0 && replicas != kept.record.replicas {
            kept.record.replicas = replicas;
            self.records.write(kept).await?;
        }
        let stopped_at = Some(self.empty(&kept.record).await?);
        if kept.record.stopped_at != stopped_at {
            kept.record.stopped_at = stopped_at;
            self.records.write(kept).await?;
        }
        Ok(())
    }

    /// Scales the workload to zero, and waits until its pods are gone. Returns its state as it was scaled: a change
    /// during the wait makes it another one.
    async fn empty(&self, record: &MoveRecord) -> Result<String, PluginError> {
        let stopped = self.workload.scale(0).await?;
        self.workload.until_empty(self.patience).await?;
        self.until_free(record).await?;
        Ok(state_of(&stopped))
    }

    /// Waits until no pod uses the claims, but those of runs.
    async fn until_free(&self, record: &MoveRecord) -> Result<(), PluginError> {
        let is_user = |pod: &Pod| record.claims.iter().any(|claim| survey::is_user(pod, &claim.name));
        loop {
            let pods = self.workload.pods().await?;
            let Some(user) = pods.iter().find(|pod| is_user(pod)) else { return Ok(()) };
            self.patience.ended(&self.workload.pods, user).await?;
        }
    }

    async fn verify(&self, kept: &mut Kept) -> Result<(), PluginError> {
        // What has come back meanwhile would change files behind the last run.
        self.stop(kept).await?;
        let pods = survey::pods(self.cluster, &self.workload.existing().await?.data).await?;
        self.passes(&kept.record, &pods).finish().await?;
        for claim in &mut kept.record.claims {
            claim.new_volume = Some(self.volumes.of_copy(claim).await?);
        }
        Ok(())
    }

    async fn swap(&self, kept: &mut Kept) -> Result<(), PluginError> {
        if kept.record.is_back {
            self.stop(kept).await?;
        } else {
            writers::check(self.cluster, &kept.record.claims).await?;
        }
        let record = &kept.record;
        self.passes(record, &json!({})).delete().await?;
        for claim in &record.claims {
            self.check_is_as_compared(kept).await?;
            let (old, new) = (claim.old_volume.as_str(), new_volume(claim)?);
            if record.is_back {
                self.volumes.swap(claim, VolumeSwap { from: new, to: old, class: None }).await?;
            } else {
                self.volumes
                    .swap(claim, VolumeSwap { from: old, to: new, class: Some(&record.class) })
                    .await?;
            }
        }
        Ok(())
    }

    /// Begins again with the comparison if the workload may have written since and all claims have their old volumes.
    async fn compare_again_if_it_ran(&self, kept: &mut Kept) -> Result<(), PluginError> {
        let record = &mut kept.record;
        if record.stage != Stage::Swap || record.is_back || self.has_stayed_stopped(record).await? {
            return Ok(());
        }
        for claim in &record.claims {
            let copy = self.volumes.claim(&claim.copy()).await?;
            if copy.is_none_or(|copy| copy.metadata.deletion_timestamp.is_some()) {
                let why = format!(
                    "{} may have run since its claims were compared, and claim {} has its new volume",
                    self.workload.path(),
                    claim.name
                );
                return Err(PluginError::blocked(why, "run the command with --back"));
            }
        }
        output::complain("note: the workload may have run since the claims were compared");
        record.stage = Stage::Verify;
        // Known again once the copies are compared. Until then, there is nothing to go back from.
        record.claims.iter_mut().for_each(|claim| claim.new_volume = None);
        Ok(())
    }

    /// Refuses to swap a claim if another command goes on with the move, or the workload may have run.
    async fn check_is_as_compared(&self, kept: &Kept) -> Result<(), PluginError> {
        self.records.check_is_same(kept).await?;
        self.until_free(&kept.record).await?;
        if kept.record.is_back || self.has_stayed_stopped(&kept.record).await? {
            return Ok(());
        }
        let why = format!("{} has been changed or started again", self.workload.path());
        let hint =
            "see what does that, such as Flux, Argo CD or an autoscaler, and run the same command again";
        Err(PluginError::blocked(why, hint))
    }

    async fn has_stayed_stopped(&self, record: &MoveRecord) -> Result<bool, PluginError> {
        let state = self.workload.get().await?.as_ref().map(state_of);
        Ok(state.is_some() && state == record.stopped_at)
    }

    /// Makes a StatefulSet anew with the class in its templates, which cannot change.
    async fn template(&self, kept: &mut Kept) -> Result<(), PluginError> {
        if kept.record.workload.kind == WorkloadKind::Deployment || kept.record.template_classes.is_empty() {
            return Ok(());
        }
        let wanted = wanted_classes(&kept.record);
        if let Some(object) = self.workload.get().await? {
            let has = template_classes(&object.data);
            if wanted.iter().all(|(name, class)| has.get(name) == Some(class)) {
                return Ok(());
            }
            if object.metadata.deletion_timestamp.is_none() {
                self.remember(kept, &object).await?;
            }
            self.workload.delete_alone(&object, self.patience).await?;
        }
        let lost = || {
            PluginError::blocked(
                "the StatefulSet is gone, and was not recorded",
                "create it again from its manifest",
            )
        };
        let manifest = kept.record.manifest.clone().ok_or_else(lost)?;
        self.workload.create(with_classes(manifest, &wanted)).await
    }

    async fn remember(&self, kept: &mut Kept, object: &DynamicObject) -> Result<(), PluginError> {
        let manifest = Some(manifest_of(serde_json::to_value(object)?));
        if kept.record.manifest == manifest {
            return Ok(());
        }
        kept.record.manifest = manifest;
        self.records.write(kept).await
    }

    async fn start(&self, record: &MoveRecord) -> Result<(), PluginError> {
        self.workload.scale(record.replicas).await?;
        self.workload.until_ready(self.patience).await
    }

    /// Deletes what a move has made that goes back before anything was swapped.
    async fn discard(&self, record: &MoveRecord) -> Result<(), PluginError> {
        self.passes(record, &json!({})).delete().await?;
        for claim in &record.claims {
            self.volumes.release(claim, &claim.old_volume).await?;
            self.volumes.discard_copy(claim).await?;
        }
        self.records.delete().await
    }

    /// Lets go of the volumes that are kept for the way back.
    async fn forget(&self, record: &MoveRecord) -> Result<(), PluginError> {
        for claim in &record.claims {
            let kept = steps::kept_volume(record, claim)?;
            let there = self.volumes.claim(&claim.name).await?;
            if there.is_some_and(|it| swap_volumes::volume_of(&it) == Some(kept)) {
                let why = format!("claim {} is on volume {kept} again", claim.name);
                return Err(PluginError::blocked(why, "delete the Secret of the move if all is well"));
            }
            self.volumes.give_up(claim, kept).await?;
            self.volumes.discard_copy(claim).await?;
        }
        self.records.delete().await?;
        output::lines(&["The volumes that were kept have their policy again. There is no way back."])
    }

    fn passes<'b>(&'b self, record: &'b MoveRecord, pods: &'b Value) -> Passes<'b> {
        let demands = Demands { verify: !self.flags.no_verify, any_owner: self.flags.any_owner };
        Passes { cluster: self.cluster, record, pods, patience: self.patience, demands }
    }
}

/// Returns whether claims may have got their new volumes.
fn was_swapped(record: &MoveRecord) -> bool {
    record.claims.iter().any(|claim| claim.new_volume.is_some())
}

fn new_volume(claim: &MovedClaim) -> Result<&str, PluginError> {
    let missing = || {
        PluginError::blocked(format!("the new volume of claim {} is not recorded", claim.name), "use --back")
    };
    claim.new_volume.as_deref().ok_or_else(missing)
}

fn wanted_classes(record: &MoveRecord) -> std::collections::BTreeMap<String, Option<String>> {
    let mut classes = record.template_classes.clone();
    if !record.is_back {
        classes.values_mut().for_each(|class| *class = Some(record.class.clone()));
    }
    classes
}
