//! Searches for input that breaks the target named by `FUZZ_TARGET`; names them all without one.
#![no_main]

use std::sync::OnceLock;

use fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: OnceLock<Target> = OnceLock::new();

fuzz_target!(
    init: {
        let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let Some((_, target)) = TARGETS.iter().find(|(name, _)| *name == wanted) else {
            for (name, _) in TARGETS {
                println!("{name}");
            }
            std::process::exit(0);
        };
        TARGET.get_or_init(|| *target);
    },
    |input: &[u8]| {
        if let Some(target) = TARGET.get() {
            target(input);
        }
    }
);
