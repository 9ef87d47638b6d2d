//! Names a plan, so that a restore does what was shown, or nothing.

use std::{fmt, str::FromStr};

use contract::PlannedAction;

use crate::snapshot::{SnapshotError, SnapshotId};

/// The digits of an id.
const DIGITS: usize = 32;

/// The name of a snapshot to restore and of all actions of the plan: 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanId(String);

/// A plan that alone may be carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedPlan<'a> {
    pub id: &'a PlanId,
    /// The snapshot that is restored.
    pub snapshot: SnapshotId,
    pub in_place: bool,
}

/// Computes the name of a plan from the snapshot and its actions, in any order.
#[derive(Debug)]
pub struct PlanHasher {
    in_place: bool,
    sum: u128,
    /// Whether any action was added, also that of the root.
    has_actions: bool,
}

impl PlanHasher {
    /// Begins the name of a plan to restore this snapshot.
    pub fn of(snapshot: SnapshotId, in_place: bool) -> Self {
        Self { in_place, sum: first_of(&snapshot.0.to_le_bytes()), has_actions: false }
    }

    /// Adds an action. Only that of a root in place counts: another one may have to be made, and is there before the
    /// run that was shown to make it.
    pub fn add(&mut self, action: &PlannedAction) {
        self.has_actions = true;
        if action.path != "." || self.in_place {
            let text = serde_json::to_vec(action).unwrap_or_default();
            self.sum = self.sum.wrapping_add(first_of(&text));
        }
    }

    /// Returns whether the plan changes anything.
    pub fn has_actions(&self) -> bool {
        self.has_actions
    }

    /// Returns the name.
    pub fn finish(&self) -> PlanId {
        PlanId(format!("{:032x}", self.sum))
    }
}

/// Returns the first 16 bytes of the hash of a part of a plan.
fn first_of(part: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new_derive_key("volferry 2026-11-25 an action of a plan v1");
    let mut first = [0; 16];
    hasher.update(part).finalize_xof().fill(&mut first);
    u128::from_le_bytes(first)
}

impl PlanId {
    /// Checks that a plan is the one of this name.
    ///
    /// # Errors [`SnapshotError::OtherPlan`].
    pub(crate) fn check(&self, now: &Self) -> Result<(), SnapshotError> {
        if self == now { Ok(()) } else { Err(SnapshotError::OtherPlan(now.to_string())) }
    }
}

impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for PlanId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_id = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(format!("a plan has {DIGITS} hexadecimal digits, as `-n` prints it"))
        }
    }
}
