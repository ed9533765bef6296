//! What every front of this machine begins with: which servers, and where their sessions are kept.
//!
//! Asked by: `serve`, `stdio`, and whoever else puts a gateway in front of servers.

use std::path::{Path, PathBuf};

use warmline::core::delivery::Delivery;
use warmline::settings::{GatewaySettings, Origin};
use warmline::store::FileStore;
use warmline::{Vault, Warmline};
use warmline_gateway::reload::Wanted;
use warmline_gateway::settings::Accesses;
use warmline_gateway::tokens::TokenStore;

use crate::problem::{Outcome, Problem};
use crate::target::records_in;

pub(crate) mod descriptors;
mod reading;
pub(crate) mod rereading;
mod source;
pub(crate) mod stopping;

pub(crate) use reading::Served;
pub(crate) use source::Source;

/// What a gateway keeps in its state folder, and what it goes by.
pub(crate) struct Kept {
    pub(crate) warm: Warmline,
    pub(crate) tokens: TokenStore,
    pub(crate) settings: GatewaySettings,
    /// Rules about callers, by server.
    pub(crate) accesses: Accesses,
    /// The folder of the records of sessions.
    pub(crate) records: PathBuf,
}

impl Kept {
    pub(crate) fn open(state: &Path, wanted: Wanted) -> Outcome<Self> {
        let vault = Vault::in_folder(state).map_err(|trouble| {
            Problem::of_trouble(&trouble, Delivery::Unsent)
                .hint("keys and sessions are kept there; name another folder with --state-dir")
        })?;
        let decided = wanted.engine.store.clone();
        // The state folder where nobody said anything. Who says `memory` wants nothing of sessions
        // on a disk.
        let is_decided = wanted.engine.origin("store.path") != Origin::Default;
        let in_memory = decided.is_none() && is_decided;
        let records = decided.unwrap_or_else(|| records_in(state));
        let mut builder = Warmline::builder()
            .settings(wanted.engine)
            .servers(wanted.servers)
            .vault(vault);
        if !in_memory {
            builder = builder.store(FileStore::in_folder(&records));
        }
        let warm = builder
            .build()
            .map_err(|error| Problem::of_trouble(error.trouble(), error.delivery()))?;
        Ok(Self {
            warm,
            tokens: TokenStore::in_state_folder(state),
            settings: wanted.gateway,
            accesses: wanted.accesses,
            records,
        })
    }
}
