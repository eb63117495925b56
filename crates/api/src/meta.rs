//! Metadata of objects, decoded once for each stored object.

use crate::Timestamp;
use serde::{Deserialize, Deserializer};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// UUID, in 16 bytes instead of 36 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uid(pub u128);

impl Uid {
    /// Draws a random (version 4) UUID.
    pub fn random(rng: &dyn crate::Rng) -> Self {
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        Uid(uuid::Builder::from_random_bytes(bytes).into_uuid().as_u128())
    }

    /// Parses the usual form with dashes.
    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::try_parse(text).ok().map(|u| Uid(u.as_u128()))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        uuid::Uuid::from_u128(self.0).hyphenated().fmt(f)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reference to an owner of an object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// Group and version of the owner.
    #[serde(default)]
    pub api_version: String,
    /// Kind of the owner.
    #[serde(default)]
    pub kind: String,
    /// Name of the owner, in the same namespace or cluster-scoped.
    #[serde(default)]
    pub name: String,
    /// UID of the owner.
    #[serde(default)]
    pub uid: String,
    /// This owner manages the object.
    #[serde(default)]
    pub controller: bool,
    /// Foreground deletion of the owner waits for the object.
    #[serde(default)]
    pub block_owner_deletion: bool,
}

/// Labels in the order of their keys, each key once.
///
/// Why not a map: its smallest node has room for eleven labels and most objects carry one or two,
/// in a store that holds every object of every tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Returns a label's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[found].1)
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl FromIterator<(Box<str>, Box<str>)> for Labels {
    /// Collects labels; of two values for one key the later counts.
    fn from_iter<I: IntoIterator<Item = (Box<str>, Box<str>)>>(pairs: I) -> Self {
        Labels(pairs.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let sorted = BTreeMap::deserialize(input)?;
        Ok(Labels(sorted.into_iter().collect()))
    }
}

/// Decoded metadata. Annotations stay in the bytes of the object: no read path needs them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// Name.
    #[serde(default)]
    pub name: Arc<str>,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: Arc<str>,
    /// UID; zero before the server sets one.
    #[serde(default, deserialize_with = "uid")]
    pub uid: Uid,
    /// Number of changes of the desired state; 0 for kinds that do not count.
    #[serde(default)]
    pub generation: i64,
    /// Time of creation.
    #[serde(default, deserialize_with = "time")]
    pub creation_timestamp: Option<Timestamp>,
    /// Time of the request to delete it.
    #[serde(default, deserialize_with = "time")]
    pub deletion_timestamp: Option<Timestamp>,
    /// True if its deletion may be taken back: `deletionGracePeriodSeconds` is above 0.
    #[serde(default, rename = "deletionGracePeriodSeconds", deserialize_with = "is_positive")]
    pub deletion_grace: bool,
    /// Labels.
    #[serde(default, deserialize_with = "or_default")]
    pub labels: Labels,
    /// Finalizers that hold it while it is being deleted.
    #[serde(default, deserialize_with = "or_default")]
    pub finalizers: Box<[Box<str>]>,
    /// Owners.
    #[serde(default, deserialize_with = "or_default")]
    pub owner_references: Box<[OwnerReference]>,
}

impl Meta {
    /// Returns true once its deletion is requested.
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns true from the request to delete it until its grace period has passed.
    pub fn awaits_deletion(&self) -> bool {
        self.is_deleting() && self.deletion_grace
    }

    /// Returns a label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(input: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

fn is_positive<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
    let seconds = serde_json::Value::deserialize(input)?;
    Ok(seconds.as_i64().is_some_and(|seconds| seconds > 0))
}

fn time<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<std::borrow::Cow<'de, str>>::deserialize(input)?.and_then(|text| Timestamp::parse(&text)))
}

fn uid<'de, D: Deserializer<'de>>(input: D) -> Result<Uid, D::Error> {
    Ok(Option::<std::borrow::Cow<'de, str>>::deserialize(input)?
        .and_then(|text| Uid::parse(&text))
        .unwrap_or_default())
}
