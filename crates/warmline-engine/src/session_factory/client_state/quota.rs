//! Limits how much is kept of what clients want.
//!
//! Each client takes a unit, and so does each of its subscriptions; a long URI takes more. An identity
//! may take as many units as are still free, so that no identity takes what others need. Clients may
//! leave without a word. Where no unit is left, the identity with the most units loses a client: the
//! one that sent no request for longest and has no subscriber. A request is refused only where there is
//! no such client.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::message::params::Params;
use warmline_core::pool_key::{Digest, Identity};

use super::{ClientInterest, ClientState, RequestingClient, RestoreRequest};
use crate::session_factory::SessionSetup;

/// The units for all that clients want of the sessions of one key.
const MAX_UNITS: usize = 10_000;
const BYTES_PER_UNIT: usize = 1_024;

const fn uri_units(uri: &str) -> usize {
    1 + uri.len() / BYTES_PER_UNIT
}

impl ClientInterest {
    fn units(&self) -> usize {
        1 + self.uris.iter().map(|uri| uri_units(uri)).sum::<usize>()
    }
}

impl SessionSetup {
    /// Reserves units for a request that changes client state. Returns what to send to the session for clients that were
    /// forgotten.
    pub(crate) fn reserve_quota(
        self: &Arc<Self>,
        requester: RequestingClient,
        method: &str,
        params: &Params,
    ) -> Result<Vec<RestoreRequest>, Diagnostic> {
        let state = self.subscription_state();
        let wanted = state.client_state.lock();
        let needed = wanted.units_needed(requester, method, params);
        if wanted.has_quota(requester, needed) {
            return Ok(Vec::new());
        }
        drop(wanted);
        let subscribers = state.subscribers.all().into_iter();
        let here: Vec<Digest> = subscribers
            .filter_map(|one| self.client_key(one.sink.client_session(), one.identity))
            .collect();
        let mut wanted = state.client_state.lock();
        let before = wanted.clone();
        let fits =
            wanted.evict_until_fits(requester, needed, (&here, self.is_shared_by_identities()));
        let unwanted = wanted.requests_since(Some(&before));
        drop(wanted);
        self.client_state_changed(state);
        if fits {
            return Ok(unwanted);
        }
        let server = &self.server.name;
        let what = format!(
            "too much is wanted of one session of `{server}`: there are {MAX_UNITS} units for clients and their subscriptions, and one caller may take as many as are free"
        );
        Err(Diagnostic::new(Reason::Overloaded, what).with_hint(
            "unsubscribe from resources that nobody needs, and end client sessions by DELETE",
        ))
    }
}

impl ClientState {
    fn units_needed(&self, requester: RequestingClient, method: &str, params: &Params) -> usize {
        let subscribes = method == "resources/subscribe";
        let uri = subscribes.then(|| params.uri()).flatten();
        let of_uri = uri.as_deref().map_or(0, uri_units);
        match requester {
            RequestingClient::Client(client, _) => match (self.interests.get(&client), &uri) {
                (Some(wish), Some(uri)) if wish.uris.contains(&**uri) => 0,
                (Some(_), _) => of_uri,
                (None, _) if method == "resources/unsubscribe" => 0,
                (None, _) => 1 + of_uri,
            },
            RequestingClient::AllClients
                if uri.is_some_and(|uri| self.unowned_subscriptions.contains(&*uri)) =>
            {
                0
            },
            RequestingClient::AllClients => of_uri,
            RequestingClient::OneCall | RequestingClient::Internal => 0,
        }
    }

    fn has_quota(&self, requester: RequestingClient, needed: usize) -> bool {
        let kept = self.unowned_subscriptions.iter();
        let kept: usize = kept.map(|uri| uri_units(uri)).sum();
        let of_each = self.units_by_identity();
        let taken: usize = of_each.values().sum::<usize>() + kept;
        let own = match requester {
            RequestingClient::Client(_, who) => of_each.get(&who).copied().unwrap_or_default(),
            RequestingClient::AllClients => taken,
            RequestingClient::OneCall | RequestingClient::Internal => 0,
        };
        needed == 0 || own + needed <= MAX_UNITS.saturating_sub(taken)
    }

    fn units_by_identity(&self) -> BTreeMap<Identity, usize> {
        let wishes = self
            .interests
            .values()
            .map(|wish| (wish.identity, wish.units()));
        let asking = self
            .pending
            .iter()
            .map(|one| (one.identity, uri_units(&one.uri)));
        let mut of_each = BTreeMap::new();
        for (who, places) in wishes.chain(asking) {
            *of_each.entry(who).or_default() += places;
        }
        of_each
    }

    /// Forgets clients that are not `here` until the units fit; false if they never do.
    fn evict_until_fits(
        &mut self,
        requester: RequestingClient,
        needed: usize,
        (here, is_everybodys): (&[Digest], bool),
    ) -> bool {
        while !self.has_quota(requester, needed) {
            // Where identities share a session, nobody receives what no known client wants.
            if is_everybodys && let Some(uri) = self.unowned_subscriptions.pop_first() {
                if !self.is_wanted(&uri) {
                    self.subscriptions.remove(&uri);
                }
                continue;
            }
            let Some(client) = self.eviction_candidate(requester, here) else {
                return false;
            };
            self.forget_client(client);
        }
        true
    }

    /// The client that sent no request for longest, of the identity with the most units, which has at
    /// least as many as the requester.
    fn eviction_candidate(&self, requester: RequestingClient, here: &[Digest]) -> Option<Digest> {
        let of_each = self.units_by_identity();
        let places = |who| of_each.get(&who).copied().unwrap_or_default();
        let own = match requester {
            RequestingClient::Client(_, who) => places(who),
            RequestingClient::AllClients
            | RequestingClient::OneCall
            | RequestingClient::Internal => 0,
        };
        let clients = self.interests.iter();
        let away = clients.filter(|(name, _)| !requester.is_client(**name) && !here.contains(name));
        let some = away.filter(|(_, wish)| places(wish.identity) >= own);
        let first = some.max_by_key(|(_, wish)| (places(wish.identity), Reverse(wish.last_change)));
        first.map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn digest(number: usize) -> Digest {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Digest::new(bytes)
    }

    fn known(client: usize, who: usize) -> RequestingClient {
        RequestingClient::Client(digest(client), Identity(digest(who)))
    }

    fn level() -> Params {
        Params::from_serialize(&json!({ "level": "info" })).unwrap()
    }

    fn uri(uri: &str) -> Params {
        Params::from_serialize(&json!({ "uri": uri })).unwrap()
    }

    const SETS_LEVEL: &str = "logging/setLevel";
    const SUBSCRIBES: &str = "resources/subscribe";

    impl ClientState {
        /// Gives an order as a call does, where these are here; says whether it was taken.
        fn takes(&mut self, giver: RequestingClient, params: &Params, here: &[Digest]) -> bool {
            let method = match params.uri() {
                Some(_) => SUBSCRIBES,
                None => SETS_LEVEL,
            };
            let needed = self.units_needed(giver, method, params);
            let takes = self.evict_until_fits(giver, needed, (here, true));
            if takes {
                self.apply_request(giver, method, params);
            }
            takes
        }
    }

    /// Clients come and go without a word: for a new one the oldest is forgotten that nobody listens
    /// for, and none is refused.
    #[test]
    fn a_new_client_is_kept_and_the_oldest_one_that_is_away_forgotten() {
        let mut orders = ClientState::default();
        for client in 0..MAX_UNITS {
            orders.apply_request(known(client, client), SETS_LEVEL, &level());
        }
        let here = [digest(0), digest(2)];
        for client in [MAX_UNITS, MAX_UNITS + 1] {
            assert!(orders.takes(known(client, client), &level(), &here));
            assert!(orders.interests.contains_key(&digest(client)));
        }
        assert_eq!(orders.interests.len(), MAX_UNITS);
        let known = [0, 1, 2, 3, 4].map(|client| orders.interests.contains_key(&digest(client)));
        assert_eq!(known, [true, false, true, false, true]);
        let all: Vec<Digest> = orders.interests.keys().copied().collect();
        let another = known_nowhere();
        assert!(!orders.takes(another, &level(), &all), "all are here");
        assert_eq!(
            orders.units_needed(another, "resources/unsubscribe", &uri("a")),
            0
        );
    }

    fn known_nowhere() -> RequestingClient {
        known(usize::MAX, usize::MAX)
    }

    /// Whoever takes all they may is refused more, by however many clients; others are not, and lose
    /// nothing by it.
    #[test]
    fn nobody_takes_the_room_that_others_need() {
        let mut orders = ClientState::default();
        let (greedy, modest) = (known(1, 1), known(2, 2));
        let here = [1, 2, 3].map(digest);
        assert!(orders.takes(modest, &uri("modest:///"), &[]));
        let large = |number: usize| uri(&format!("{number}{}", "x".repeat(100 * BYTES_PER_UNIT)));
        let taken =
            (0..MAX_UNITS).take_while(|number| orders.takes(greedy, &large(*number), &here));
        let taken = taken.count();
        assert!((45..55).contains(&taken), "{taken}");
        assert!(!orders.takes(known(3, 1), &large(taken), &here));
        // What it has it may ask for again, and others may ask for it too.
        for giver in [greedy, modest, known(4, 4)] {
            assert!(orders.takes(giver, &large(0), &here));
        }
        // Its own client that went without a word makes room.
        assert!(orders.takes(known(3, 1), &large(taken), &here[1..]));
        assert_eq!(
            orders.interests.get(&digest(1)).map(ClientInterest::units),
            None
        );
        let kept = orders.interests.get(&digest(2)).unwrap();
        assert!(kept.uris.contains("modest:///"));
    }

    /// What nobody is known to want gives way first, where it is told to nobody.
    #[test]
    fn what_was_wanted_before_a_restart_gives_way() {
        let mut orders = ClientState::default();
        for number in 0..MAX_UNITS {
            orders.apply_request(
                RequestingClient::AllClients,
                SUBSCRIBES,
                &uri(&format!("{number:05}")),
            );
        }
        assert!(orders.takes(known(1, 1), &uri("new"), &[]));
        assert!(orders.subscriptions.contains("new"));
        assert!(!orders.subscriptions.contains("00000"));
        assert!(orders.subscriptions.len() <= MAX_UNITS);
    }
}
