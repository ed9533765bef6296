//! Modern clients through the gateway, by their bytes.

mod checks;
mod falling_back;
mod listening;
mod merged;
mod piped;
mod relayed;
mod runs;
mod tasks;
pub(crate) mod wire;
