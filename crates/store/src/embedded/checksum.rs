//! Checksums of stored values, and the digest of a whole store.
//!
//! A value's checksum covers its key, so that a value found under another key does not verify. The
//! digest is the sum of all checksums modulo 2^128: a commit updates it from the values that it
//! replaces, and it depends on no order. It finds a missing key, a superfluous one, and an older
//! value whose own checksum is right.
//!
//! ```text
//! {}                       0
//! put a=1                  c(a,1)
//! put b=1                  c(a,1) + c(b,1)
//! put a=2, delete b        c(a,2)
//! ```
//!
//! XXH3 detects damage, not forgery: a process that may write these files may write anything into
//! them.

use insula_api::Revision;
use twox_hash::{XxHash3_64, XxHash3_128};

/// Keeps checksums of this format apart from those of another.
const SEED: u64 = 0x696e_7375_6c61_0002;

/// Sum of the checksums of all values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digest(u128);

/// A revision and the digest of the objects at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) revision: Revision,
    /// The digest with the revision mixed in, so that neither changes alone unnoticed.
    pub(super) sum: u128,
}

/// Returns the checksum of a value under its key.
pub(crate) fn checksum(key: &[u8], value: &[u8]) -> u128 {
    XxHash3_128::oneshot_with_seed(XxHash3_64::oneshot_with_seed(SEED, key), value)
}

/// Returns the checksum of a short record that has no key.
pub(super) fn short(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(SEED, bytes)
}

impl Digest {
    /// Adds a value's checksum.
    pub(super) fn add(&mut self, checksum: u128) {
        self.0 = self.0.wrapping_add(checksum);
    }

    /// Takes out the checksum of a value that is replaced or deleted.
    pub(super) fn remove(&mut self, checksum: u128) {
        self.0 = self.0.wrapping_sub(checksum);
    }

    /// Returns the seal of a store with this digest at a revision.
    pub(super) fn seal(self, revision: Revision) -> Seal {
        let sum = self.0.wrapping_add(checksum(b"revision", &revision.0.to_le_bytes()));
        Seal { revision, sum }
    }
}
