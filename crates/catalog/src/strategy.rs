//! Strategies: the hooks by which a resource extends the generic path, a fixed set modelled on
//! apiserver-builder.

use insula_api::{FieldError, Json, Timestamp};

/// Differences in behaviour between Kubernetes' resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// True if a PUT without `resourceVersion` overwrites.
    pub unconditional_update: bool,
    /// True if the server maintains `metadata.generation`.
    pub generation: bool,
    /// True if DELETE returns the object instead of a Status.
    pub deletes_to_object: bool,
    /// True for resources with their own deletion path (Kubernetes' namespaces and definitions): no
    /// grace period, no new generation, other messages for failed preconditions.
    pub own_deletion: bool,
    /// True if DELETE of a collection exists. The deletion of a namespace deletes its content, so
    /// namespaces are deleted one at a time.
    pub deletes_collection: bool,
    /// True for built-in kinds: lists omit an empty `metadata.continue`, and the field selectors
    /// differ.
    pub built_in: bool,
    /// True for kinds that Go decodes into a struct and encodes from it.
    pub is_struct: bool,
    /// True if a PUT creates a missing object.
    pub created_by_update: bool,
    /// True for reviews: they can only be created, are answered at once, and are never stored.
    pub review: bool,
    /// True for kinds whose objects nobody writes.
    pub read_only: bool,
    /// Fields of the metadata that writes to `/status` may change as well (built-in kinds, never
    /// custom resources).
    pub status_takes: &'static [&'static str],
    /// True if an update may keep what [`Strategy::validate`] refuses and the old object has too,
    /// as the schema allows.
    pub ratchets: bool,
}

impl Traits {
    /// Traits of a custom resource.
    pub const CUSTOM: Traits = Traits {
        unconditional_update: false,
        generation: true,
        deletes_to_object: false,
        own_deletion: false,
        deletes_collection: true,
        built_in: false,
        is_struct: false,
        created_by_update: false,
        review: false,
        read_only: false,
        status_takes: &[],
        ratchets: false,
    };
    /// Traits of a kind that a program adds to the server.
    pub const COMPILED: Traits = Traits {
        status_takes: &["labels", "annotations", "finalizers", "ownerReferences"],
        ratchets: true,
        ..Traits::CUSTOM
    };
    /// Traits of a built-in kind such as a ConfigMap.
    pub const BUILT_IN: Traits = Traits {
        unconditional_update: true,
        generation: false,
        deletes_to_object: false,
        own_deletion: false,
        deletes_collection: true,
        built_in: true,
        is_struct: true,
        created_by_update: false,
        review: false,
        read_only: false,
        status_takes: &["labels", "annotations"],
        ratchets: false,
    };
}

/// The effect of DELETE on an object without finalizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    /// The server deletes the object at once.
    Go,
    /// The object stays, marked as deleting, until the strategy's own hold is gone.
    Hold,
}

/// Hooks of a resource in the generic path. All hooks are pure functions of the object's JSON in
/// its storage version; admission makes the checks that depend on other objects. The registry's
/// `prepare` module defines the order of the hooks.
pub trait Strategy: Send + Sync {
    /// Returns the traits of the resource.
    fn traits(&self) -> Traits {
        Traits::CUSTOM
    }

    /// Returns the decoding error of a request body, for formats that a schema cannot express.
    fn undecodable(&self, _sent: &Json) -> Option<String> {
        None
    }

    /// Returns the paths of unknown fields, for formats that a schema cannot express.
    fn unknown_fields(&self, _sent: &Json) -> Vec<String> {
        Vec::new()
    }

    /// Sets defaults that a schema cannot express.
    fn default(&self, _new: &mut Json) {}

    /// Sets defaults of an object in the version of the request, before its schema validates it.
    fn default_version(&self, _new: &mut Json, _version: &str) {}

    /// Sets the server's fields on a new object.
    fn prepare_for_create(&self, _new: &mut Json, _now: Timestamp) {}

    /// Preserves the server's fields on an updated object.
    fn prepare_for_update(&self, _new: &mut Json, _old: &Json, _now: Timestamp) {}

    /// Returns the value that a field selector compares, if it is not the field of that name.
    /// `_shown` is the object in the requested version.
    fn selectable(&self, _shown: &Json, _field: &str) -> Option<String> {
        None
    }

    /// Validates rules that the schema cannot express.
    fn validate(&self, _new: &Json) -> Vec<FieldError> {
        Vec::new()
    }

    /// Validates the change between two versions of an object.
    fn validate_update(&self, _new: &Json, _old: &Json) -> Vec<FieldError> {
        Vec::new()
    }

    /// Returns warnings for a valid object; for an update, only about the change.
    fn warnings(&self, _new: &Json, _old: Option<&Json>) -> Vec<String> {
        Vec::new()
    }

    /// Normalizes an object so that equal content has one form.
    fn canonicalize(&self, _new: &mut Json) {}

    /// Marks an object as deleting and returns the effect of the deletion.
    fn on_delete(&self, _object: &mut Json, _now: Timestamp) -> OnDelete {
        OnDelete::Go
    }

    /// Returns true if something other than `metadata.finalizers` still holds a deleted object (a
    /// namespace's `spec.finalizers`).
    fn is_held(&self, _object: &Json) -> bool {
        false
    }
}

/// The strategy of custom resources: their schema defines all behaviour.
#[derive(Debug, Clone, Copy)]
pub struct Custom;

impl Strategy for Custom {}
