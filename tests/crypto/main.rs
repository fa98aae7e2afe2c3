//! Encryption at rest and signed tokens, over cryptography that runs natively.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed assertion by other means"
)]
#![allow(unreachable_pub, reason = "a module is shared with other tests")]

#[path = "../manager/support/crypto.rs"]
mod crypto;
mod tokens;
mod vault;
