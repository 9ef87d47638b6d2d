//! Finds damage of a store, names what needs it, and heals what has a good copy.

pub(crate) mod check_turn;
pub(crate) mod damaged_paths;
pub(crate) mod heal_folders;
pub(crate) mod heal_objects;
pub(crate) mod read_pace;
pub(crate) mod repair_list;
pub(crate) mod verify_objects;

pub use check_turn::{StoreShare, Turn};
pub use damaged_paths::{Damage, DamageNames, DamagedPath};
pub use heal_objects::heal;
pub use read_pace::ReadPace;
pub use repair_list::{Repair, RepairStep, plan_repair};
pub use verify_objects::{ListDamage, Verified, verify};
