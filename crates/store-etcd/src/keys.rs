//! Where things are in etcd.

use insula_api::ObjectKey;

/// The keys under one prefix.
#[derive(Clone)]
pub(crate) struct Keys {
    root: Vec<u8>,
    objects: Vec<u8>,
    tick: Vec<u8>,
}

impl Keys {
    /// `/insula` and `/insula/` are the same prefix.
    pub(crate) fn new(prefix: &str) -> Self {
        let root = format!("{}/", prefix.trim_end_matches('/'));
        Keys {
            objects: format!("{root}objects/").into_bytes(),
            tick: format!("{root}tick").into_bytes(),
            root: root.into_bytes(),
        }
    }

    /// What all keys begin with.
    pub(crate) fn root(&self) -> &[u8] {
        &self.root
    }

    /// What the keys of objects begin with, and the first key behind them.
    pub(crate) fn objects(&self) -> (Vec<u8>, Vec<u8>) {
        let mut end = self.objects.clone();
        if let Some(last) = end.last_mut() {
            // The last byte is the `/`.
            *last += 1;
        }
        (self.objects.clone(), end)
    }

    pub(crate) fn tick(&self) -> Vec<u8> {
        self.tick.clone()
    }

    pub(crate) fn object(&self, key: &ObjectKey) -> Vec<u8> {
        [&*self.objects, &*key.encode()].concat()
    }

    /// The encoded key of an object, if it is one's.
    pub(crate) fn encoded<'a>(&self, key: &'a [u8]) -> Option<&'a [u8]> {
        key.strip_prefix(self.objects.as_slice())
    }
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
            assert!(keys.tick() >= end && keys.tick().starts_with(keys.root()) && keys.encoded(&keys.tick()).is_none());
        }
    }
}
