//! The gateway between clients and a server that keeps a ledger.

#![cfg(test)]

mod admin;
mod asked;
mod bursts;
mod cancelled;
#[path = "../stage/census.rs"]
mod census;
#[path = "../stories/child.rs"]
#[expect(dead_code, reason = "the stories use more of it")]
mod child;
mod crowded;
mod declared;
mod door;
mod door_refusing;
mod door_wire;
mod exposition;
mod flooded;
mod going_down;
mod led_elsewhere;
mod legacy;
mod legacy_streams;
mod legacy_tickets;
mod listening_on;
#[path = "../stage/lives.rs"]
mod lives;
#[path = "../gleaning/logbook.rs"]
mod logbook;
mod merged;
mod merged_lists;
mod merged_owners;
mod merged_streams;
mod merged_world;
mod modern;
mod nameless;
mod noticed;
mod old_transport;
mod ops;
mod ops_leaving;
mod ops_truth;
mod ops_unread;
#[path = "../stage/program.rs"]
mod program;
mod programs;
mod refusals;
mod refused;
mod resting;
mod ruled;
mod secrets;
mod shared_orders;
mod standing;
mod staying;
mod straight;
mod streamed;
mod told_once;
mod tracing_context;
mod turned_out;
mod unread;
mod verbatim;
mod who;
mod who_handed;
mod who_hidden;
mod who_jwt;
mod who_keys;
mod wire;
mod without_id;
mod world;
