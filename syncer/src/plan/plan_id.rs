//! Names a plan, so that a restore does what was shown, or nothing.

use std::{fmt, str::FromStr};

use contract::PlannedAction;

use crate::snapshot::SnapshotError;

/// The digits of an id.
const DIGITS: usize = 32;

/// The name of all actions of a plan: 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanId(String);

/// Computes the name of a plan from its actions, in any order. The root is left out: it is made before a run that was
/// shown to make it.
#[derive(Debug, Default)]
pub struct PlanHasher {
    sum: u128,
    /// Whether any action was added, also that of the root.
    has_actions: bool,
}

impl PlanHasher {
    /// Adds an action.
    pub fn add(&mut self, action: &PlannedAction) {
        self.has_actions = true;
        if action.path == "." {
            return;
        }
        let text = serde_json::to_vec(action).unwrap_or_default();
        let mut hasher = blake3::Hasher::new_derive_key("volferry 2026-11-25 an action of a plan v1");
        let mut first = [0; 16];
        first.copy_from_slice(&hasher.update(&text).finalize().as_bytes()[..16]);
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(first));
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
