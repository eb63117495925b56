//! What a resource adds to the generic path: the hooks of apiserver-builder, closed to these.

use insula_api::{FieldError, Json, Timestamp};

/// How a resource behaves where Kubernetes' resources differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// A PUT without `resourceVersion` overwrites.
    pub unconditional_update: bool,
    /// Counts `metadata.generation`.
    pub generation: bool,
    /// DELETE answers with the object instead of a Status.
    pub deletes_to_object: bool,
    /// Its deletion is not the general one (Kubernetes' namespaces and definitions): no grace
    /// period, no new generation, preconditions in other words.
    pub own_deletion: bool,
    /// Built-in: lists leave `metadata.continue` out when empty, other field selectors.
    pub built_in: bool,
    /// A PUT of an object that is not there makes it.
    pub created_by_update: bool,
    /// A question that is answered at once: it can only be created, and is never stored.
    pub review: bool,
    /// `/status` writes may also change labels and annotations (built-ins; never custom resources).
    pub status_takes_metadata: bool,
}

impl Traits {
    /// A custom resource.
    pub const CUSTOM: Traits = Traits {
        unconditional_update: false,
        generation: true,
        deletes_to_object: false,
        own_deletion: false,
        built_in: false,
        created_by_update: false,
        review: false,
        status_takes_metadata: false,
    };
    /// A built-in such as a ConfigMap.
    pub const BUILT_IN: Traits = Traits {
        unconditional_update: true,
        generation: false,
        deletes_to_object: false,
        own_deletion: false,
        built_in: true,
        created_by_update: false,
        review: false,
        status_takes_metadata: true,
    };
}

/// What DELETE does to an object without finalizers that hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDelete {
    /// It goes at once.
    Go,
    /// It stays, marked as deleting, until something the strategy put there is gone.
    Hold,
}

/// Hooks around the generic path. All work on the object in its storage version as JSON and are
/// pure; what needs a look at other objects is admission. The order is in [`crate::before`].
pub trait Strategy: Send + Sync {
    /// How the resource behaves.
    fn traits(&self) -> Traits {
        Traits::CUSTOM
    }

    /// Why what was sent could not be read, where a schema cannot say it.
    fn undecodable(&self, _sent: &Json) -> Option<String> {
        None
    }

    /// Paths of fields that nobody knows, where a schema cannot say it.
    fn unknown_fields(&self, _sent: &Json) -> Vec<String> {
        Vec::new()
    }

    /// Defaults that a schema cannot say.
    fn default(&self, _new: &mut Json) {}

    /// Sets what the server owns on a new object.
    fn prepare_for_create(&self, _new: &mut Json, _now: Timestamp) {}

    /// Keeps what the server owns on a changed object.
    fn prepare_for_update(&self, _new: &mut Json, _old: &Json, _now: Timestamp) {}

    /// What a field selector compares, where it is not the field of that name. In the version that
    /// is asked for.
    fn selectable(&self, _shown: &Json, _field: &str) -> Option<String> {
        None
    }

    /// Rules beyond the schema.
    fn validate(&self, _new: &Json) -> Vec<FieldError> {
        Vec::new()
    }

    /// Rules about changes.
    fn validate_update(&self, _new: &Json, _old: &Json) -> Vec<FieldError> {
        Vec::new()
    }

    /// What the sender should know of an object that is fine; of a changed one, what the change
    /// brought.
    fn warnings(&self, _new: &Json, _old: Option<&Json>) -> Vec<String> {
        Vec::new()
    }

    /// Brings equal content into one form.
    fn canonicalize(&self, _new: &mut Json) {}

    /// Marks an object that is being deleted, and says whether it stays for now.
    fn on_delete(&self, _object: &mut Json, _now: Timestamp) -> OnDelete {
        OnDelete::Go
    }

    /// Whether something other than `metadata.finalizers` still holds a deleted object (a
    /// namespace's `spec.finalizers`).
    fn is_held(&self, _object: &Json) -> bool {
        false
    }
}

/// A custom resource: its schema says it all.
#[derive(Debug, Clone, Copy)]
pub struct Custom;

impl Strategy for Custom {}
