//! Table of shared beginnings of objects: the JSON before the metadata is `apiVersion` and `kind`
//! for most objects of a kind, and the whole content for some (the ConfigMap with the CA in every
//! namespace).
//!
//! The table has a fixed number of slots, chosen by hash. A text that takes over the slot of
//! another only ends the sharing with later objects, so the table needs no sweep and cannot grow.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

/// Number of slots; far fewer kinds are in use at once.
const SLOTS: usize = 1024;
/// Longest beginning, in bytes, that is shared: longer ones are data of single objects.
const BYTES_MAX: usize = 4096;

type Slot = Mutex<Option<Weak<str>>>;

static TABLE: LazyLock<Box<[Slot]>> = LazyLock::new(|| (0..SLOTS).map(|_| Slot::default()).collect());

/// Returns a text equal to this one, shared with other objects if possible.
pub(crate) fn shared(text: &str) -> Arc<str> {
    if text.len() > BYTES_MAX {
        return text.into();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let slot = &TABLE[hasher.finish() as usize % SLOTS];
    let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.as_ref().and_then(Weak::upgrade).filter(|found| **found == *text);
    found.unwrap_or_else(|| {
        let made = Arc::from(text);
        *known = Some(Arc::downgrade(&made));
        made
    })
}
