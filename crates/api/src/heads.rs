//! Beginnings of objects, kept once: what stands before the metadata is `apiVersion` and `kind` for
//! most objects of a kind, and the whole content for some (the ConfigMap with the CA in every
//! namespace).
//!
//! A small table, in which a text has one place: another text of the same place takes it over, and
//! then the first is no longer shared with those that come. So it needs no sweep, and cannot grow.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

/// Places; kinds in use at once are far fewer.
const PLACES: usize = 1024;
/// Longer beginnings are somebody's data.
const BYTES_MAX: usize = 4096;

type Place = Mutex<Option<Weak<str>>>;

static TABLE: LazyLock<Box<[Place]>> = LazyLock::new(|| (0..PLACES).map(|_| Place::default()).collect());

/// A text that is equal to this one, which others may have, too.
pub(crate) fn shared(text: &str) -> Arc<str> {
    if text.len() > BYTES_MAX {
        return text.into();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let place = &TABLE[hasher.finish() as usize % PLACES];
    let mut known = place.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.as_ref().and_then(Weak::upgrade).filter(|found| **found == *text);
    found.unwrap_or_else(|| {
        let made = Arc::from(text);
        *known = Some(Arc::downgrade(&made));
        made
    })
}
