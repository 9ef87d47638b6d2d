//! Claims and their volumes: whether they can be mounted, how they are made and grow, and where they are.

pub mod access_modes;
pub mod block_volumes;
pub mod claim_creation;
pub mod claim_growth;
pub mod claim_sharing;
pub mod claims;
pub mod node_watches;
pub mod volume_nodes;
