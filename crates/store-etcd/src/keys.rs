//! Layout of the keys in etcd.

use insula_api::ObjectKey;

/// Name of the mark of the format among the objects. It is no name of an object, so that programs
/// before format 3, which know no mark, refuse the store; their error shows the name.
const FORMAT_MARK: &str = "!a-later-version-of-insula-uses-this-store";

/// The keys under one prefix.
#[derive(Clone)]
pub(crate) struct Keys {
    root: Vec<u8>,
    objects: Vec<u8>,
    sessions: Vec<u8>,
    tick: Vec<u8>,
    format: Vec<u8>,
}

impl Keys {
    /// `/insula` and `/insula/` are the same prefix.
    pub(crate) fn new(prefix: &str) -> Self {
        let root = format!("{}/", prefix.trim_end_matches('/'));
        Keys {
            objects: format!("{root}objects/").into_bytes(),
            sessions: format!("{root}sessions/").into_bytes(),
            tick: format!("{root}tick").into_bytes(),
            format: format!("{root}objects/{FORMAT_MARK}").into_bytes(),
            root: root.into_bytes(),
        }
    }

    /// Returns the prefix of all keys.
    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    /// Returns the prefix of the keys of objects, and the first key behind them.
    pub(crate) fn objects(&self) -> (Vec<u8>, Vec<u8>) {
        bounds(&self.objects)
    }

    /// Returns the prefix of the sessions of all servers, and the first key behind them.
    pub(crate) fn sessions(&self) -> (Vec<u8>, Vec<u8>) {
        bounds(&self.sessions)
    }

    /// Returns the key of one session of the server `instance`.
    pub(crate) fn session(&self, instance: u64, session: u64) -> Vec<u8> {
        let name = format!("{instance:016x}-{session}");
        [&*self.sessions, name.as_bytes()].concat()
    }

    /// Returns true for a session of the server `instance`.
    pub(crate) fn is_session_of(&self, key: &[u8], instance: u64) -> bool {
        let name = format!("{instance:016x}-");
        key.strip_prefix(self.sessions.as_slice())
            .is_some_and(|rest| rest.starts_with(name.as_bytes()))
    }

    /// Returns true for the key of any server's session.
    pub(crate) fn is_session(&self, key: &[u8]) -> bool {
        key.starts_with(&self.sessions)
    }

    pub(crate) fn tick(&self) -> Vec<u8> {
        self.tick.clone()
    }

    pub(crate) fn object(&self, key: &ObjectKey) -> Vec<u8> {
        [&*self.objects, &*key.encode()].concat()
    }

    /// Returns the key of the mark of the format.
    pub(crate) fn format(&self) -> Vec<u8> {
        self.format.clone()
    }

    /// Returns true for the key of the mark of the format.
    pub(crate) fn is_format(&self, key: &[u8]) -> bool {
        key == self.format
    }

    /// Returns the encoded object key of an etcd key, if it belongs to an object.
    pub(crate) fn encoded<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.strip_prefix(self.objects.as_slice())
            .filter(|_| !self.is_format(key))
    }
}

fn bounds(prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        // The last byte is the `/`.
        *last += 1;
    }
    (prefix.to_vec(), end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use insula_api::{ClusterName, ResourceId};

    #[test]
    fn objects_live_between_their_bounds() {
        let key = ObjectKey::cluster_scoped(ResourceId::local("", "namespaces"), ClusterName::root(), "a");
        for prefix in ["/insula", "/insula/", "insula", ""] {
            let keys = Keys::new(prefix);
            let (start, end) = keys.objects();
            let at = keys.object(&key);
            assert!(start < at && at < end && at.starts_with(keys.root()), "{prefix}");
            assert_eq!(keys.encoded(&at), Some(&*key.encode()));
            let mark = keys.format();
            assert!(start < mark && mark < end && keys.encoded(&mark).is_none(), "{prefix}");
            assert!(
                ObjectKey::decode(&mark[start.len()..]).is_err(),
                "earlier programs refuse it"
            );
            let session = keys.session(7, 1);
            assert!(keys.is_session(&session) && !keys.is_session(&at) && keys.encoded(&session).is_none());
            assert!(keys.tick() >= end && keys.tick().starts_with(keys.root()) && keys.encoded(&keys.tick()).is_none());
        }
    }
}
