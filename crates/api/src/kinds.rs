//! Typed views of our own kinds, for reading.
//!
//! A view holds the fields that the server acts on. It is not the whole object, so an object is
//! never written from its view: writers change the JSON value beside it. Unknown fields are
//! ignored. A field that is missing, `null` or of another type has its default; the schemas of the
//! kinds admit no other type.

mod apis;
mod core;
mod max_held;
mod tenancy;
#[cfg(test)]
mod tests;
mod topology;

pub use apis::{
    AddedResource, ApiBinding, ApiBindingPhase, ApiBindingSpec, ApiBindingStatus, ApiConversion, ApiConversionSpec,
    ApiConversionStatus, ApiExport, ApiExportEndpoint, ApiExportEndpointSlice, ApiExportEndpointSliceSpec,
    ApiExportEndpointSliceStatus, ApiExportIdentity, ApiExportRetirement, ApiExportRollout, ApiExportSpec,
    ApiExportStatus, ApiNames, ApiResourceSchema, ApiResourceSchemaSpec, ApiVersion, BindingReference, BoundResource,
    BoundSchema, ConversionDirection, ExportReference, ExportedResource, FormerRelease, PermissionClaim,
    RETIREMENT_DAYS, ReleasedResource, ResourceStorage, RolloutState, RolloutStep, SecretReference, VersionUsage,
};
pub use core::{LogicalCluster, LogicalClusterOwner, LogicalClusterSpec, LogicalClusterStatus};
pub use max_held::{MaxHeld, MaxHeldError};
pub use tenancy::{
    DefaultApiBinding, MountReference, TypeExtension, Workspace, WorkspaceLocation, WorkspaceMount, WorkspacePhase,
    WorkspaceSpec, WorkspaceStatus, WorkspaceType, WorkspaceTypeReference, WorkspaceTypeSpec,
};
pub use topology::{Partition, PartitionSet, PartitionSetSpec, PartitionSpec};

use crate::Json;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use std::collections::BTreeMap;

/// Reads a view of an object, or of a part of one. Never fails: see the [module](self) on defaults.
pub fn read<T: DeserializeOwned + Default>(value: &Json) -> T {
    T::deserialize(value).unwrap_or_default()
}

/// Deserializes a field; anything that does not fit becomes the default.
fn or_default<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(input: D) -> Result<T, D::Error> {
    // By reference, as whole views are read: one more way would double their code.
    Ok(T::deserialize(&json(input)?).unwrap_or_default())
}

#[inline(never)]
fn json<'de, D: Deserializer<'de>>(input: D) -> Result<Json, D::Error> {
    Json::deserialize(input)
}

/// Declares views: structs whose fields have the camel-case names of JSON and are all optional.
macro_rules! views {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {$(
            $(#[$field_doc])*
            #[serde(deserialize_with = "crate::kinds::or_default")]
            pub $field: $type,
        )*}
    )*};
}
use views;

views! {
    /// The metadata that [`crate::Meta`] leaves in the bytes.
    ObjectMetadata {
        /// Annotations.
        annotations: BTreeMap<String, String>,
    }
}

impl ObjectMetadata {
    /// Returns an annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }
}
