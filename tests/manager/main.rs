//! The manager against servers in memory, with a clock that the test moves.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed assertion by other means"
)]
#![allow(
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "values made on the spot read better than references to them"
)]

mod adding;
mod ai;
mod behind;
mod calling;
mod cases_elicitation;
mod cases_hibernation;
mod cases_session;
mod cases_tools;
mod cases_transport;
mod cases_urls;
mod catalogs;
mod catalogue;
mod coming_back;
mod connecting;
mod fairness;
mod found;
mod model;
mod oauth_flow;
mod oauth_providers;
mod oauth_races;
mod oauth_scopes;
mod oauth_storage;
mod oauth_tokens;
mod reconnecting;
mod registering;
mod renaming;
mod rounds;
mod serving;
mod skills;
mod support;
mod tasks;
mod tracing;
mod unasked;
mod waking;
