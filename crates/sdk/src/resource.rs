//! Resources: types that are versions of a kind.

use crate::Kind;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// A type of objects that clients and controllers know, such as `ConfigMap`: any of k8s-openapi,
/// and every [`Resource`].
pub trait Known:
    kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

impl<T> Known for T where
    T: kube::Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
}

/// A type that is one version of a kind. `#[derive(Resource)]` makes one, and so does
/// `#[derive(CustomResource)]` of kube-rs: the trait has no items of its own.
pub trait Resource: Known + kube::CustomResourceExt {}

impl<T: Known + kube::CustomResourceExt> Resource for T {}

/// A type whose attributes describe its kind: strategy, other versions, subresources.
/// `#[derive(Resource)]` implements it. For types of kube-rs there is [`Kind::new`].
pub trait Described: Resource {
    /// Returns the kind.
    fn described() -> Kind<Self>;
}
