//! Tools for models: schemas in the dialect of each provider, against golden files and the
//! providers' rules.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed assertion by other means"
)]

mod golden;
mod random;
mod rules;
