//! Strategies: the behaviour of a kind that its schema cannot express.

use crate::{Resource, blocking::aside, convert};
use insula_api::{FieldError, FieldPath, Json, Timestamp};
use insula_catalog::Traits;
use insula_conversion::apply_edit;
use insula_schema::Structural;
use std::{collections::BTreeMap, sync::Arc};

/// The behaviour of a kind in the path of every write: create, update, patch and apply. Each hook
/// has a default that does nothing.
///
/// A write runs the hooks in this order:
///
/// ```text
/// create   default · (schema) · prepare_for_create · validate · canonicalize
/// update   default · (schema) · prepare_for_update · validate · validate_update · canonicalize
/// ```
///
/// - `default` sees the version that the client wrote, all others the hub type. To give another
///   version defaults of its own, implement the trait for its type and pass it to
///   [`Kind::version_with`](crate::Kind::version_with).
/// - A status that is sent outside of `/status` is dropped before the first hook; a strategy may
///   set one. A write to `/status` changes metadata and status only, whatever the hooks do.
/// - An update may keep what `validate` refuses if the old object has it too, so that a stricter
///   rule blocks no finalizer.
/// - Fields that the type does not have stay as they are. Hooks change labels, annotations,
///   finalizers and owner references of the metadata; the rest belongs to the server.
/// - Hooks are synchronous and see one object. What depends on other objects belongs to admission
///   policies or to a controller.
#[allow(unused_variables, reason = "the names document the hooks")]
pub trait Strategy<T: Resource>: Send + Sync + 'static {
    /// Sets defaults of the version that the client wrote. A client reads them back.
    fn default(&self, new: &mut T) {}

    /// Completes a new object, for example with a finalizer.
    fn prepare_for_create(&self, new: &mut T, context: &Context) {}

    /// Completes a changed object.
    fn prepare_for_update(&self, new: &mut T, old: &T, context: &Context) {}

    /// Validates a new or changed object.
    fn validate(&self, new: &T) -> Vec<FieldError> {
        Vec::new()
    }

    /// Validates a change, for example that a field stays as it is.
    fn validate_update(&self, new: &T, old: &T) -> Vec<FieldError> {
        Vec::new()
    }

    /// Returns warnings for the client of a valid write. `old` is the object before an update.
    fn warnings(&self, new: &T, old: Option<&T>) -> Vec<String> {
        Vec::new()
    }

    /// Brings equal content into one form, for example a list into an order.
    fn canonicalize(&self, new: &mut T) {}
}

/// The surroundings of a write.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Context {
    /// The time of the server.
    pub now: Timestamp,
}

/// The strategy of a kind whose schema says everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoStrategy;

impl<T: Resource> Strategy<T> for NoStrategy {}

/// Sets the defaults of one version.
pub(crate) type Defaults = Box<dyn Fn(&mut Json) + Send + Sync>;

/// Returns the function that sets the defaults of a version by its type's strategy.
pub(crate) fn defaults<V: Resource>(strategy: Arc<dyn Strategy<V>>, schema: Arc<Structural>) -> Defaults {
    Box::new(move |new| edit::<V>(new, &schema, |typed| strategy.default(typed)))
}

/// A strategy as the server calls it, on the JSON of the hub version.
pub(crate) struct Adapter<T> {
    pub(crate) strategy: Arc<dyn Strategy<T>>,
    pub(crate) schema: Arc<Structural>,
    /// Defaults by version.
    pub(crate) defaults: BTreeMap<String, Defaults>,
}

impl<T: Resource> insula_catalog::Strategy for Adapter<T> {
    fn traits(&self) -> Traits {
        Traits::COMPILED
    }

    fn default_version(&self, new: &mut Json, version: &str) {
        if let Some(defaults) = self.defaults.get(version) {
            defaults(new);
        }
    }

    fn prepare_for_create(&self, new: &mut Json, now: Timestamp) {
        let context = Context { now };
        edit::<T>(new, &self.schema, |new| self.strategy.prepare_for_create(new, &context));
    }

    fn prepare_for_update(&self, new: &mut Json, old: &Json, now: Timestamp) {
        let Ok(old) = convert::read::<T>(old) else { return };
        let context = Context { now };
        edit::<T>(new, &self.schema, |new| {
            self.strategy.prepare_for_update(new, &old, &context)
        });
    }

    fn validate(&self, new: &Json) -> Vec<FieldError> {
        match convert::read::<T>(new) {
            Ok(new) => aside(|| self.strategy.validate(&new)),
            // Only a type that is narrower than its schema gets here.
            Err(why) => vec![FieldError::invalid_text(&FieldPath::root(), "", why)],
        }
    }

    fn validate_update(&self, new: &Json, old: &Json) -> Vec<FieldError> {
        match (convert::read::<T>(new), convert::read::<T>(old)) {
            (Ok(new), Ok(old)) => aside(|| self.strategy.validate_update(&new, &old)),
            _ => Vec::new(),
        }
    }

    fn warnings(&self, new: &Json, old: Option<&Json>) -> Vec<String> {
        let Ok(new) = convert::read::<T>(new) else {
            return Vec::new();
        };
        let old = old.and_then(|old| convert::read::<T>(old).ok());
        aside(|| self.strategy.warnings(&new, old.as_ref()))
    }

    fn canonicalize(&self, new: &mut Json) {
        edit::<T>(new, &self.schema, |new| self.strategy.canonicalize(new));
    }
}

/// Metadata that hooks may change beside labels and annotations.
const METADATA: [&str; 2] = ["finalizers", "ownerReferences"];

/// Changes an object by its type. Fields that the hook does not change stay as they are, whether
/// the type has them or not. An object that the type cannot read stays as it is.
fn edit<T: Resource>(object: &mut Json, schema: &Structural, hook: impl FnOnce(&mut T)) {
    let Ok(mut typed) = convert::read::<T>(object) else {
        return;
    };
    let Ok(before) = convert::json(&typed) else {
        return;
    };
    aside(|| hook(&mut typed));
    let Ok(after) = convert::json(&typed) else {
        return;
    };
    if before == after {
        return;
    }
    let mut edited = apply_edit(schema, &before, &after, object);
    for field in METADATA {
        let (had, has) = (&before["metadata"][field], &after["metadata"][field]);
        if had == has {
            continue;
        }
        if let Some(metadata) = edited["metadata"].as_object_mut() {
            match has.is_null() {
                true => metadata.remove(field),
                false => metadata.insert(field.to_owned(), has.clone()),
            };
        }
    }
    *object = edited;
}
