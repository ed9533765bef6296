//! Room for orders: how much is kept of what clients want, and who is forgotten for it.
//!
//! Each client takes a place, and each resource that it wants to hear of; a long name takes more.
//! An identity may take as many as are still free, so that nobody takes what others need. Clients
//! may go without a word. So where there is no room, that one of whoever has most is forgotten that
//! gave no order for longest and that nobody listens for; and only where there is none, an order is
//! refused.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Digest, Identity};
use warmline_core::protocol::params::Params;

use super::{Giver, Orders, Wish};
use crate::connect::Setup;
use crate::connect::saying::Said;

/// So many places there are for what is wanted of the sessions of one key.
const PLACES: usize = 10_000;
/// So many bytes of a resource's name have one.
const BYTES: usize = 1_024;

/// How many places the name of a resource takes.
const fn of_uri(uri: &str) -> usize {
    1 + uri.len() / BYTES
}

impl Wish {
    fn places(&self) -> usize {
        1 + self.uris.iter().map(|uri| of_uri(uri)).sum::<usize>()
    }
}

impl Setup {
    /// Sees to it that there is room for what an order wants kept. Gives what has to be said to a
    /// session of clients that were forgotten for it.
    pub(crate) fn makes_room(
        self: &Arc<Self>,
        giver: Giver,
        method: &str,
        params: &Params,
    ) -> Result<Vec<Said>, Trouble> {
        if !Orders::are_given_by(method) {
            return Ok(Vec::new());
        }
        let aside = self.aside();
        let needed = {
            let orders = aside.orders.lock();
            let needed = orders.needed(giver, method, params);
            if orders.has_room(giver, needed) {
                return Ok(Vec::new());
            }
            needed
        };
        let listeners = aside.audience.all();
        let names = listeners.iter();
        let here: Vec<Digest> = names
            .filter_map(|(client, who)| self.name(*client, *who))
            .collect();
        let mut orders = aside.orders.lock();
        let before = orders.clone();
        let has_room = orders.make_room(giver, needed, (&here, self.is_everybodys()));
        let unwanted = orders.beyond(Some(&before));
        drop(orders);
        aside.audience.changed();
        self.renews();
        if has_room {
            return Ok(unwanted);
        }
        let server = &self.entry.name;
        let what = format!(
            "too much is wanted of one session of `{server}`: there are {PLACES} places for clients and their subscriptions, and one caller may take as many as are free"
        );
        Err(Trouble::new(Reason::Overloaded, what)
            .hint("take subscriptions back that nobody needs, and end client sessions by DELETE"))
    }
}

impl Orders {
    /// How many more places are taken if an order is noted.
    fn needed(&self, giver: Giver, method: &str, params: &Params) -> usize {
        let subscribes = method == "resources/subscribe";
        let uri = subscribes.then(|| params.uri()).flatten();
        let of_uri = uri.as_deref().map_or(0, of_uri);
        match giver {
            Giver::Known(client, _) => match (self.wishes.get(&client), &uri) {
                (Some(wish), Some(uri)) if wish.uris.contains(&**uri) => 0,
                (Some(_), _) => of_uri,
                (None, _) if method == "resources/unsubscribe" => 0,
                (None, _) => 1 + of_uri,
            },
            Giver::All if uri.is_some_and(|uri| self.of_somebody.contains(&*uri)) => 0,
            Giver::All => of_uri,
            Giver::Passing | Giver::Nobody => 0,
        }
    }

    fn has_room(&self, giver: Giver, needed: usize) -> bool {
        let kept = self.of_somebody.iter();
        let kept: usize = kept.map(|uri| of_uri(uri)).sum();
        let of_each = self.of_each();
        let taken: usize = of_each.values().sum::<usize>() + kept;
        let own = match giver {
            Giver::Known(_, who) => of_each.get(&who).copied().unwrap_or_default(),
            // It stands for all.
            Giver::All => taken,
            Giver::Passing | Giver::Nobody => 0,
        };
        needed == 0 || own + needed <= PLACES.saturating_sub(taken)
    }

    /// How many places each identity has.
    fn of_each(&self) -> BTreeMap<Identity, usize> {
        let wishes = self.wishes.values().map(|wish| (wish.who, wish.places()));
        let asking = self.asking.iter().map(|one| (one.who, of_uri(&one.uri)));
        let mut of_each = BTreeMap::new();
        for (who, places) in wishes.chain(asking) {
            *of_each.entry(who).or_default() += places;
        }
        of_each
    }

    /// Forgets clients until there is room, but for those who are here; says whether there is.
    fn make_room(
        &mut self,
        giver: Giver,
        needed: usize,
        (here, is_everybodys): (&[Digest], bool),
    ) -> bool {
        while !self.has_room(giver, needed) {
            // Where identities share a session, what is nobody's is told to nobody.
            if is_everybodys && let Some(uri) = self.of_somebody.pop_first() {
                if !self.is_wanted(&uri) {
                    self.subscriptions.remove(&uri);
                }
                continue;
            }
            let Some(client) = self.least_missed(giver, here) else {
                return false;
            };
            self.forget(client);
        }
        true
    }

    /// Of those who have most, and not less than who gives an order, the client that gave none for
    /// longest.
    fn least_missed(&self, giver: Giver, here: &[Digest]) -> Option<Digest> {
        let of_each = self.of_each();
        let places = |who| of_each.get(&who).copied().unwrap_or_default();
        let own = match giver {
            Giver::Known(_, who) => places(who),
            Giver::All | Giver::Passing | Giver::Nobody => 0,
        };
        let clients = self.wishes.iter();
        let away = clients.filter(|(name, _)| !giver.is(**name) && !here.contains(name));
        let some = away.filter(|(_, wish)| places(wish.who) >= own);
        let first = some.max_by_key(|(_, wish)| (places(wish.who), Reverse(wish.last)));
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

    fn known(client: usize, who: usize) -> Giver {
        Giver::Known(digest(client), Identity(digest(who)))
    }

    fn level() -> Params {
        Params::of(&json!({ "level": "info" })).unwrap()
    }

    fn uri(uri: &str) -> Params {
        Params::of(&json!({ "uri": uri })).unwrap()
    }

    const SETS_LEVEL: &str = "logging/setLevel";
    const SUBSCRIBES: &str = "resources/subscribe";

    impl Orders {
        /// Gives an order as a call does, where these are here; says whether it was taken.
        fn takes(&mut self, giver: Giver, params: &Params, here: &[Digest]) -> bool {
            let method = match params.uri() {
                Some(_) => SUBSCRIBES,
                None => SETS_LEVEL,
            };
            let needed = self.needed(giver, method, params);
            let takes = self.make_room(giver, needed, (here, true));
            if takes {
                self.note(giver, method, params);
            }
            takes
        }
    }

    /// Clients come and go without a word: for a new one the oldest is forgotten that nobody listens
    /// for, and none is refused.
    #[test]
    fn a_new_client_is_kept_and_the_oldest_one_that_is_away_forgotten() {
        let mut orders = Orders::default();
        for client in 0..PLACES {
            orders.note(known(client, client), SETS_LEVEL, &level());
        }
        let here = [digest(0), digest(2)];
        for client in [PLACES, PLACES + 1] {
            assert!(orders.takes(known(client, client), &level(), &here));
            assert!(orders.wishes.contains_key(&digest(client)));
        }
        assert_eq!(orders.wishes.len(), PLACES);
        let known = [0, 1, 2, 3, 4].map(|client| orders.wishes.contains_key(&digest(client)));
        assert_eq!(known, [true, false, true, false, true]);
        let all: Vec<Digest> = orders.wishes.keys().copied().collect();
        let another = known_nowhere();
        assert!(!orders.takes(another, &level(), &all), "all are here");
        assert_eq!(
            orders.needed(another, "resources/unsubscribe", &uri("a")),
            0
        );
    }

    fn known_nowhere() -> Giver {
        known(usize::MAX, usize::MAX)
    }

    /// Whoever takes all they may is refused more, by however many clients; others are not, and lose
    /// nothing by it.
    #[test]
    fn nobody_takes_the_room_that_others_need() {
        let mut orders = Orders::default();
        let (greedy, modest) = (known(1, 1), known(2, 2));
        let here = [1, 2, 3].map(digest);
        assert!(orders.takes(modest, &uri("modest:///"), &[]));
        let large = |number: usize| uri(&format!("{number}{}", "x".repeat(100 * BYTES)));
        let taken = (0..PLACES).take_while(|number| orders.takes(greedy, &large(*number), &here));
        let taken = taken.count();
        assert!((45..55).contains(&taken), "{taken}");
        assert!(!orders.takes(known(3, 1), &large(taken), &here));
        // What it has it may ask for again, and others may ask for it too.
        for giver in [greedy, modest, known(4, 4)] {
            assert!(orders.takes(giver, &large(0), &here));
        }
        // Its own client that went without a word makes room.
        assert!(orders.takes(known(3, 1), &large(taken), &here[1..]));
        assert_eq!(orders.wishes.get(&digest(1)).map(Wish::places), None);
        let kept = orders.wishes.get(&digest(2)).unwrap();
        assert!(kept.uris.contains("modest:///"));
    }

    /// What nobody is known to want gives way first, where it is told to nobody.
    #[test]
    fn what_was_wanted_before_a_restart_gives_way() {
        let mut orders = Orders::default();
        for number in 0..PLACES {
            orders.note(Giver::All, SUBSCRIBES, &uri(&format!("{number:05}")));
        }
        assert!(orders.takes(known(1, 1), &uri("new"), &[]));
        assert!(orders.subscriptions.contains("new"));
        assert!(!orders.subscriptions.contains("00000"));
        assert!(orders.subscriptions.len() <= PLACES);
    }
}
