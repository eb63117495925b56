//! Streams of objects to a client. Cached objects are copied. A missing object is converted
//! together with all missing objects after it.

use super::{
    cache::{Cache, Key, encode},
    scheduler::Job,
};
use bytes::Bytes;
use insula_access::Target;
use insula_api::{Json, measure::TRACE};
use insula_catalog::{
    Error, Result, Served,
    stored::{self, passes_through, value},
};
use insula_store::Entry;
use std::{collections::VecDeque, sync::Arc};
use tracing::Instrument;

/// Returns true if a target shows an object as it is stored.
pub fn is_stored(target: &Target, entry: &Entry) -> bool {
    passes_through(&target.serving(&entry.key), entry, &target.version)
}

/// Returns the stored JSON of an object in any version, with its resourceVersion, as a target shows
/// it.
pub fn stored_value(target: &Target, entry: &Entry) -> Json {
    let mut value = stored::stored_value(entry);
    target.show_label(&mut value);
    value
}

/// A stream of objects as clients of the target's version see them. Callers stop at the first
/// object that cannot be shown.
pub struct Show<'a, E> {
    cache: &'a Arc<Cache>,
    target: &'a Target,
    entries: E,
    /// Conversions of the objects that follow.
    ahead: VecDeque<(Key, Result<Bytes>)>,
    /// True once the webhook was called for all objects.
    asked: bool,
}

impl<'a, E> Show<'a, E>
where
    E: Iterator<Item = &'a Entry> + Clone,
{
    /// Returns a stream of objects, in their order, through the cache.
    pub fn new(cache: &'a Arc<Cache>, target: &'a Target, entries: E) -> Self {
        Show {
            cache,
            target,
            entries,
            ahead: VecDeque::new(),
            asked: false,
        }
    }

    /// Appends the next object, or nothing after the last one.
    ///
    /// # Errors
    /// The object cannot be converted or encoded.
    pub async fn append(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(entry) = self.entries.next() else {
            return Ok(());
        };
        let target = self.target;
        let served = target.serving(&entry.key);
        if passes_through(&served, entry, &target.version) {
            target.write_stored(entry, out);
            return Ok(());
        }
        let begin = out.len();
        self.append_converted(&served, entry, out).await?;
        target.write_label(out, begin);
        Ok(())
    }

    /// Appends the conversion of an object.
    async fn append_converted(&mut self, served: &Served, entry: &'a Entry, out: &mut Vec<u8>) -> Result<()> {
        let version = &self.target.version;
        // Every read calls the webhook, as in Kubernetes. Only watches keep its responses.
        if served.api.webhook.is_some() && !std::mem::replace(&mut self.asked, true) {
            let all = std::iter::once(entry).chain(self.entries.clone());
            prefetch(self.target, all).await;
        }
        if served.alias.is_some() || served.api.webhook.is_some() {
            out.extend_from_slice(&encode(&value(served, entry, version)?)?);
            return Ok(());
        }
        let key = Key::new(served, entry, version);
        let ahead = self.ahead.pop_front_if(|(made, _)| *made == key);
        match ahead {
            Some((_, made)) => out.extend_from_slice(&made?),
            None if self.cache.converted.copy(key, out) => self.cache.measures.hits.inc(),
            None => out.extend_from_slice(&self.make(key, entry).await?),
        }
        Ok(())
    }

    /// Returns the next object as a value, or null after the last one.
    ///
    /// # Errors
    /// The object cannot be converted, encoded or decoded.
    pub async fn value(&mut self) -> Result<Json> {
        let Some(entry) = self.entries.clone().next() else {
            return Ok(Json::Null);
        };
        if is_stored(self.target, entry) {
            self.entries.next();
            return Ok(stored_value(self.target, entry));
        }
        let mut bytes = Vec::new();
        self.append(&mut bytes).await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Internal(error.to_string()))
    }

    /// Converts a missing object together with all missing objects after it.
    async fn make(&mut self, key: Key, entry: &'a Entry) -> Result<Bytes> {
        let target = &*self.target.generation(&entry.key);
        let Target { served, version, .. } = target;
        let behind = self
            .entries
            .clone()
            // Objects under another schema are converted when the stream reaches them.
            .filter(|entry| self.target.serving(&entry.key).api.fingerprint == served.api.fingerprint)
            .map(|entry| (Key::new(served, entry, version), entry));
        let behind =
            behind.filter(|(key, entry)| !passes_through(served, entry, version) && !self.cache.converted.keeps(*key));
        let (keys, missing): (Vec<Key>, Vec<Entry>) = std::iter::once((key, entry))
            .chain(behind)
            .map(|(key, entry)| (key, entry.clone()))
            .unzip();
        if let Some(counters) = self.cache.metering.counters(&target.cluster) {
            counters.converted(missing.len() as u64);
        }
        let span = tracing::info_span!(target: TRACE, "convert", insula.objects = missing.len());
        let job = Job::new(target, missing);
        span.in_scope(|| self.cache.begin(target, &job));
        let converted = job.done().instrument(span).await;
        self.ahead = keys.into_iter().zip(converted).collect();
        match self.ahead.pop_front() {
            Some((_, made)) => made,
            None => Err(Error::Internal("a conversion was left".into())),
        }
    }
}

/// Prefetches the webhook responses that reading objects in the target's version needs. Forgets
/// earlier responses first, because every read calls the webhook again. Only watches share
/// responses.
pub(crate) async fn prefetch<'e>(target: &Target, entries: impl Iterator<Item = &'e Entry>) {
    let Some(pending_calls) = &target.served.pending_calls else {
        return;
    };
    pending_calls.forget();
    for entry in entries {
        // Other errors are reported when the object is read.
        drop(value(&target.served, entry, &target.version));
    }
    pending_calls.answer(&target.cluster).await;
}
