//! Resources: types that are versions of a kind.

use crate::Kind;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// A type that is one version of a kind. `#[derive(Resource)]` makes one, and so does
/// `#[derive(CustomResource)]` of kube-rs: the trait has no items of its own.
pub trait Resource:
    kube::Resource<DynamicType = ()>
    + kube::CustomResourceExt
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<T> Resource for T where
    T: kube::Resource<DynamicType = ()>
        + kube::CustomResourceExt
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A type whose attributes describe its kind: strategy, other versions, subresources.
/// `#[derive(Resource)]` implements it. For types of kube-rs there is [`Kind::new`].
pub trait Described: Resource {
    /// Returns the kind.
    fn described() -> Kind<Self>;
}
