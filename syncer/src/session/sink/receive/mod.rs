//! Fetches content over the network: requests it with the manifest of the basis, and receives, checks and writes it.

pub(crate) mod arrivals;
pub(crate) mod assembly;
pub(crate) mod basis_cost;
pub(crate) mod basis_reader;
pub(crate) mod chunk_basis;
pub(crate) mod concat;
pub(crate) mod cutting;
pub(crate) mod fetch;
pub(crate) mod granule_basis;
pub(crate) mod in_flight;
pub(crate) mod receiver;
