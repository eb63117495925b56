//! Objects on their way to a client: what is there is copied, what is missing is made for all that
//! follow at once.

use crate::{
    asking,
    representation::{
        cache::{Cache, Key},
        encode,
        job::Job,
    },
};
use bytes::Bytes;
use insula_access::Target;
use insula_api::Json;
use insula_catalog::{
    Error, Result,
    stored::{passes_through, stored_value, value},
};
use insula_store::Entry;
use std::{collections::VecDeque, sync::Arc};

/// Objects as clients of the target's version see them, one after the other. Nobody looks behind
/// one that cannot be shown.
pub struct Show<'a, E> {
    cache: &'a Arc<Cache>,
    target: &'a Target,
    entries: E,
    /// What was made for those that follow.
    ahead: VecDeque<(Key, Result<Bytes>)>,
    /// Whether the webhook has been asked about all of them.
    asked: bool,
}

impl<'a, E> Show<'a, E>
where
    E: Iterator<Item = &'a Entry> + Clone,
{
    pub(super) fn new(cache: &'a Arc<Cache>, target: &'a Target, entries: E) -> Self {
        Show {
            cache,
            target,
            entries,
            ahead: VecDeque::new(),
            asked: false,
        }
    }

    /// Appends the next object; nothing behind the last one.
    pub async fn append(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let Some(entry) = self.entries.next() else {
            return Ok(());
        };
        let (served, version) = (&*self.target.serving(&entry.key), &self.target.version);
        if passes_through(served, entry, version) {
            entry.object.write_to(entry.revision, out);
            return Ok(());
        }
        // A webhook is asked at each reading, as in Kubernetes: what it said is kept for watches
        // alone.
        if served.api.webhook.is_some() && !std::mem::replace(&mut self.asked, true) {
            let all = std::iter::once(entry).chain(self.entries.clone());
            asking::learn(self.target, all).await;
        }
        if served.alias.is_some() || served.api.webhook.is_some() {
            out.extend_from_slice(&encode(&value(served, entry, version)?)?);
            return Ok(());
        }
        let key = Key::new(served, entry, version);
        let ahead = self.ahead.pop_front_if(|(made, _)| *made == key);
        match ahead {
            Some((_, made)) => out.extend_from_slice(&made?),
            None if self.cache.copy(key, out) => {}
            None => out.extend_from_slice(&self.make(key, entry).await?),
        }
        Ok(())
    }

    /// The next object as a value; null behind the last one.
    pub async fn value(&mut self) -> Result<Json> {
        let Some(entry) = self.entries.clone().next() else {
            return Ok(Json::Null);
        };
        let version = &self.target.version;
        if passes_through(&self.target.serving(&entry.key), entry, version) {
            self.entries.next();
            return Ok(stored_value(entry));
        }
        let mut bytes = Vec::new();
        self.append(&mut bytes).await?;
        serde_json::from_slice(&bytes).map_err(|error| Error::Internal(error.to_string()))
    }

    /// An object that is missing. All that are missing behind it are made with it.
    async fn make(&mut self, key: Key, entry: &'a Entry) -> Result<Bytes> {
        let target = &*self.target.generation(&entry.key);
        let Target { served, version, .. } = target;
        let behind = self
            .entries
            .clone()
            // The others are made when it is their turn.
            .filter(|entry| self.target.serving(&entry.key).api.fingerprint == served.api.fingerprint)
            .map(|entry| (Key::new(served, entry, version), entry));
        let behind = behind.filter(|(key, entry)| !passes_through(served, entry, version) && !self.cache.keeps(*key));
        let (keys, missing): (Vec<Key>, Vec<Entry>) = std::iter::once((key, entry))
            .chain(behind)
            .map(|(key, entry)| (key, entry.clone()))
            .unzip();
        let job = Job::new(target, missing);
        self.cache.begin(target, &job);
        self.ahead = keys.into_iter().zip(job.done().await).collect();
        match self.ahead.pop_front() {
            Some((_, made)) => made,
            None => Err(Error::Internal("a conversion was left".into())),
        }
    }
}
