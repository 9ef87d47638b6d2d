//! Has the service of an endpoint follow the spec without a restart: writes its files anew, and has it read them again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use contract::chain;

use super::{args::ServiceArgs, service_error::ServiceError};
use crate::{
    api::SyncEndpoint,
    endpoints::serve_config::{ServicePlace, ServiceRules, rules},
    engine::process::Syncer,
};

/// The process of a service.
pub(super) struct Running {
    pub(super) syncer: Syncer,
    /// Whether it listens. Before that, the signal by which it reads its files again could end it.
    pub(super) is_up: bool,
    /// Whether its files have changed since it read them.
    pub(super) is_stale: bool,
}

impl Running {
    /// Notes that it listens.
    pub(super) fn listens(&mut self) {
        self.is_up = true;
        self.reload();
    }

    /// Has it read its files again if the spec has changed them. A spec that cannot be served changes nothing.
    pub(super) fn follow(&mut self, files: &Files<'_>, endpoint: &SyncEndpoint) {
        match files.write(endpoint) {
            Ok(has_changed) => self.is_stale |= has_changed,
            Err(error) => tracing::error!(error = chain(&error), "the former rules stay"),
        }
        self.reload();
    }

    fn reload(&mut self) {
        if self.is_up && std::mem::take(&mut self.is_stale) {
            self.syncer.reload();
        }
    }
}

/// The files of the service.
pub(super) struct Files<'a> {
    pub(super) args: &'a ServiceArgs,
    pub(super) keys: Vec<PathBuf>,
}

impl Files<'_> {
    pub(super) fn config(&self) -> PathBuf {
        self.args.state.join("serve.toml")
    }

    /// Returns whether the endpoint's peers are to be served from this pod, which may have been made for an earlier
    /// spec and ends soon.
    fn is_of(&self, endpoint: &SyncEndpoint) -> bool {
        endpoint.spec.persistent_volume_claim.claim_name == self.args.claim && !endpoint.spec.suspend
    }

    /// Writes the files as the endpoint's spec says. Returns whether that has changed anything.
    pub(super) fn write(&self, endpoint: &SyncEndpoint) -> Result<bool, ServiceError> {
        let authorized = self.args.state.join("authorized");
        let place = ServicePlace {
            volume: &self.args.volume,
            keys: &self.keys,
            authorized: &authorized,
            listen: self.args.listen(self.args.port),
            metrics: self.args.listen(self.args.metrics_port),
        };
        let names = [self.args.namespace.as_str(), self.args.name.as_str()];
        // Also where the rest of that spec cannot be served.
        if !self.is_of(endpoint) && self.config().exists() {
            return replace(&authorized, "");
        }
        let written =
            rules(names, &endpoint.spec, &place).map_err(|error| ServiceError::Spec(error.into()))?;
        let ServiceRules { config, authorized: keys } = written;
        let has_new_keys = replace(&authorized, &keys)?;
        Ok(replace(&self.config(), &config)? || has_new_keys)
    }
}

/// Puts a file with this text in the place of another. Returns false if that has the same text.
fn replace(path: &Path, text: &str) -> Result<bool, ServiceError> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(false);
    }
    let part = path.with_extension("part");
    let in_file = |source| ServiceError::File { path: path.into(), source };
    fs::write(&part, text).and_then(|()| fs::rename(&part, path)).map_err(in_file)?;
    Ok(true)
}
