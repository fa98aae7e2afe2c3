//! Cutting bytes into chunks, at places that look random and are the same for the same bytes.
//!
//! The input of a target is then nothing but the bytes that are read, so seeds are plain files.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A source of numbers that depends on the bytes alone.
pub struct Numbers(u64);

impl Numbers {
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self(hasher.finish() | 1)
    }

    /// A number from 0 to `max`.
    pub fn up_to(&mut self, max: usize) -> usize {
        // Xorshift, Marsaglia 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits fit") % (max + 1)
    }

    /// The bytes in chunks of 0 to `longest`.
    pub fn cut<'b>(&mut self, bytes: &'b [u8], longest: usize) -> Vec<&'b [u8]> {
        let mut chunks = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(self.up_to(longest).min(rest.len()));
            chunks.push(head);
            rest = tail;
        }
        chunks
    }
}
