//! Preparation of an object between a request and the store: one order of steps for every resource
//! and every edge.
//!
//! The mutating policies of the workspace ([`insula_admission::policy`]) have run before.
//!
//! Create: server-owned metadata → prune and default (request's version) → validate metadata and
//! schema → convert to the storage version → strategy: default, prepare_for_create, validate,
//! canonicalize → object.
//!
//! Update: the same steps, with the fields that the old object keeps. Schema errors of unchanged
//! fields are tolerated (ratcheting). Only the strategy may change the sent object after
//! validation.

use crate::{
    metadata::{self, generated_name},
    owners::{self, By},
};
use insula_access::view::WrittenObject;
use insula_admission::policy;
use insula_api::{Clock, ClusterName, FieldError, FieldErrorKind, FieldPath, Json, Object, Rng, Timestamp, Uid};
use insula_catalog::{
    ApiVersion, Error, Origin, Part, Result, ScopeKind, Served,
    object::{annotate_cluster, metadata_of, refuse},
    stored,
};
use insula_conversion::Stored;
use insula_store::{Entry, TXN_BYTES_MAX};
use serde_json::json;

/// The schema mark that matches no schema. Reads of such an object default and prune it.
const UNMARKED: u64 = 0;

/// Bytes reserved in a transaction for keys and quota objects.
const BESIDE_BYTES_MAX: usize = 16 << 10;

/// The maximum of a Scale's replicas, which are 32-bit integers.
const REPLICAS_MAX: i64 = i32::MAX as i64;

/// The context of a write: its resource, version, cluster and namespace.
pub struct Context<'a> {
    /// The resource.
    pub served: &'a Served,
    /// The request's version.
    pub version: &'a ApiVersion,
    /// The cluster.
    pub cluster: &'a ClusterName,
    /// The namespace, empty for cluster-scoped resources.
    pub namespace: &'a str,
    /// The time.
    pub clock: &'a dyn Clock,
    /// Randomness for UIDs and generated names.
    pub rng: &'a dyn Rng,
    /// The part of the object that is written.
    pub part: Part,
    /// The change of field ownership.
    pub(crate) by: By<'a>,
}

/// An object in its storage version, before admission has looked at it.
#[derive(Debug)]
pub struct Draft {
    /// The object.
    pub value: Json,
    pub(crate) residual: Option<Vec<u8>>,
    /// The schema mark of the object, if it differs from the serving schema's.
    pub(crate) written_under: Option<u64>,
    /// The object as readers of the request's version see it, if that is known and differs from the
    /// stored form.
    pub(crate) shown: Option<Json>,
    /// For `Warning` headers.
    pub warnings: Vec<String>,
}

impl Draft {
    /// Returns the object as policies see it.
    pub(crate) fn as_new(&self) -> policy::New<'_> {
        policy::New::Stored {
            value: &self.value,
            residual: self.residual.as_deref(),
        }
    }

    /// Returns the object for a grant to complete.
    pub(crate) fn held(&mut self) -> WrittenObject<'_> {
        WrittenObject {
            stored: &mut self.value,
            shown: self.shown.as_mut(),
        }
    }

    /// Returns the object to store, and its form in the request's version. An object that is too
    /// large with its field owners is stored without them, as in Kubernetes. It then has no owners
    /// until a client applies.
    pub(crate) fn finish(mut self, served: &Served) -> Result<(Object, Option<Json>)> {
        let mut object = self.object(served)?;
        let bytes = object.body_len() + self.residual.as_ref().map_or(0, Vec::len);
        if bytes > TXN_BYTES_MAX - BESIDE_BYTES_MAX && !owners::take(&mut self.value).is_null() {
            self.shown.as_mut().map(owners::take);
            object = self.object(served)?;
        }
        Ok((object, self.shown))
    }

    fn object(&self, served: &Served) -> Result<Object> {
        Object::new(&self.value, self.residual.as_deref().map(Into::into))
            .map(|object| object.written_under(self.written_under.unwrap_or(served.api.fingerprint)))
            .map_err(|error| {
                let kind = &served.names().kind;
                Error::BadRequest(format!(
                    "{kind} in version {:?} cannot be handled as a {kind}: {error}",
                    self.value["apiVersion"]
                ))
            })
    }
}

/// Prunes and defaults the sent object before policies see it.
pub(crate) fn complete(context: &Context<'_>, new: &mut Json) {
    let Context { served, version, .. } = context;
    if served.api.scope == ScopeKind::Namespaced {
        metadata_of(new).insert("namespace".into(), json!(context.namespace));
    }
    insula_schema::prune(new, &version.schema);
    drop_nulls(context, new);
    insula_schema::default(new, &version.schema);
}

/// Drops nulls that carry no value. For built-in kinds, nulls in maps of strings become empty
/// strings, as in Go.
fn drop_nulls(context: &Context<'_>, new: &mut Json) {
    let schema = &context.version.schema;
    if context.served.api.strategy.traits().built_in {
        insula_schema::fill_nulls(new, schema);
    }
    insula_schema::drop_nulls(new, schema);
}

/// Prunes unknown fields and fills in defaults.
fn fit(context: &Context<'_>, new: &mut Json) {
    let schema = &context.version.schema;
    insula_schema::prune(new, schema);
    // A null in an applied custom resource is intended. The schema refuses it where it is not
    // nullable.
    let means_null = matches!(context.by, By::Applied(_)) && !context.served.api.strategy.traits().built_in;
    if !means_null {
        drop_nulls(context, new);
    }
    insula_schema::default(new, schema);
    // For other versions the strategy's defaults apply after conversion.
    let Context { served, version, .. } = context;
    if served.alias.is_none() && version.name == served.api.storage_version().name {
        served.api.strategy.default(new);
    }
}

/// Returns errors for replicas that a Scale cannot represent.
fn replicas_errors(version: &ApiVersion, new: &Json) -> Vec<FieldError> {
    let wrong = version.scale.as_ref().and_then(|scale| {
        let path = &scale.spec_replicas;
        let replicas = path
            .trim_start_matches('.')
            .split('.')
            .try_fold(new, |value, field| value.get(field))?;
        let why = match replicas.as_i64()? {
            ..0 => "should be a non-negative integer",
            0..=REPLICAS_MAX => return None,
            _ => "should be less than or equal to 2147483647",
        };
        Some(FieldError::invalid(&FieldPath::new(path), replicas, why))
    });
    wrong.into_iter().collect()
}

/// Prepares a new object, sent in the request's version.
///
/// # Errors
/// The object has no name, is invalid, or cannot be converted to the storage version.
pub fn create(context: &Context<'_>, mut new: Json) -> Result<Draft> {
    let Context { served, version, .. } = context;
    let now = context.clock.now();
    own_new_metadata(context, &mut new, now)?;
    let mut warnings = metadata::unite_owners(metadata_of(&mut new));
    let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if version.status {
        remove(&mut new, "status");
    }
    fit(context, &mut new);
    let mut misnamed = Vec::new();
    metadata::validate(served, &new["metadata"], &mut misnamed);
    let found = insula_schema::validate(&new, &version.schema).into_iter();
    let mut errors: Vec<FieldError> = found.map(|error| in_words_of(served, error)).collect();
    errors.extend(replicas_errors(version, &new));
    warnings.extend(metadata::warnings(&new["metadata"]));
    // Built-in kinds report errors of names together with errors of their strategy.
    if served.origin != Origin::System || !errors.is_empty() {
        errors.splice(0..0, misnamed.drain(..));
        refuse(served, &name, errors)?;
    }
    owners::created(context, &mut new);

    let (mut stored, residual) = to_storage(context, &new, None)?;
    let strategy = &served.api.strategy;
    strategy.default(&mut stored);
    strategy.prepare_for_create(&mut stored, now);
    let mut errors = misnamed;
    errors.extend(strategy.validate(&stored));
    errors.extend(errors_as_stored(context, &stored, None)?);
    refuse(served, &name, errors)?;
    warnings.extend(strategy.warnings(&stored, None));
    Ok(draft(context, new, (stored, residual), warnings))
}

/// Returns the draft of a valid write, from the object in the request's version and in the stored
/// one.
fn draft(
    context: &Context<'_>,
    new: Json,
    (mut stored, residual): (Json, Option<Vec<u8>>),
    warnings: Vec<String>,
) -> Draft {
    context.served.api.strategy.canonicalize(&mut stored);
    Draft {
        written_under: mark(context, &stored),
        value: stored,
        residual,
        shown: shown(context, new),
        warnings,
    }
}

/// Prepares a changed object, sent in the request's version, over the old one.
///
/// # Errors
/// The change is invalid, or one of the objects cannot be converted.
pub fn update(context: &Context<'_>, mut new: Json, old: &Entry) -> Result<Draft> {
    let Context {
        served, version, part, ..
    } = *context;
    let now = context.clock.now();
    let old_seen = stored::value(served, old, &version.name)?;
    let name = old.object.meta.name.to_string();
    let sent = owners::take(&mut new);
    if part.is_of_status() {
        new = status_only(served, new, &old_seen);
    }
    if part == Part::Finalizers {
        new = finalizers_only(&new, &old_seen);
    }
    keep_old_metadata(context, &mut new, &old_seen);
    let mut warnings = metadata::unite_owners(metadata_of(&mut new));
    if version.status && !part.is_of_status() {
        match old_seen.get("status") {
            Some(status) => new["status"] = status.clone(),
            None => remove(&mut new, "status"),
        }
    }
    fit(context, &mut new);
    count_generation(served, version, &mut new, &old_seen, part);

    let mut errors = Vec::new();
    metadata::validate(served, &new["metadata"], &mut errors);
    metadata::validate_update(&new["metadata"], &old_seen["metadata"], &mut errors);
    let outcome = insula_schema::validate_update(&new, &old_seen, &version.schema);
    errors.extend(outcome.errors.into_iter().map(|error| match part {
        Part::Main | Part::Scale | Part::Finalizers => in_words_of(served, error),
        Part::Status | Part::Approval => seen_from_status(error),
    }));
    if !part.is_of_status() {
        errors.extend(replicas_errors(version, &new));
    }
    warnings.extend(outcome.warnings);
    warnings.extend(metadata::warnings(&new["metadata"]));
    refuse(served, &name, errors)?;
    owners::updated(context, old, old_seen, &mut new, sent);

    let old_stored = stored::stored_value(old);
    let (mut stored, residual) = to_storage(context, &new, Some(old))?;
    let strategy = &served.api.strategy;
    strategy.default(&mut stored);
    strategy.prepare_for_update(&mut stored, &old_stored, now);
    if part == Part::Finalizers {
        // Writes to any other part leave these finalizers as they are.
        stored = finalizers_only(&new, &stored);
    }
    let mut errors = strategy.validate(&stored);
    errors.extend(strategy.validate_update(&stored, &old_stored));
    errors.extend(errors_as_stored(context, &stored, Some(old))?);
    refuse(served, &name, errors)?;
    warnings.extend(strategy.warnings(&stored, Some(&old_stored)));
    Ok(draft(context, new, (stored, residual), warnings))
}

/// Words a duplicate error as Kubernetes does: built-in kinds name the key, others name the item.
fn in_words_of(served: &Served, error: FieldError) -> FieldError {
    if error.kind != FieldErrorKind::Duplicate || !served.api.strategy.traits().built_in {
        return error;
    }
    match serde_json::from_str(&error.value) {
        Ok(Json::Object(keys)) if keys.len() == 1 => {
            let key = keys.iter().next();
            key.map_or(error.clone(), |(key, value)| {
                FieldError::duplicate(&error.field.child(key), value)
            })
        }
        _ => error,
    }
}

/// Removes the prefix `status.` from the detail of an error about a status.
fn seen_from_status(mut error: FieldError) -> FieldError {
    if let Some(rest) = error.detail.strip_prefix("status.") {
        error.detail = rest.to_owned();
    }
    error
}

fn remove(object: &mut Json, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}

/// Converts an object to the storage version over the stored object. Restores the API's own group
/// and kind first if the request used an alias.
fn to_storage(context: &Context<'_>, new: &Json, old: Option<&Entry>) -> Result<(Json, Option<Vec<u8>>)> {
    let version = &*context.version.name;
    let old_value = old.map(|old| old.object.body_value());
    let stored = old.zip(old_value.as_ref()).map(|(old, value)| Stored {
        value,
        version: old.object.version(),
        residual: old.object.residual(),
    });
    let own = stored::unalias(context.served, new);
    let owned = context
        .served
        .put(own.as_ref().unwrap_or(new), version, stored)
        .map_err(|failed| failed.or(|error| stored::write_error(context.served, new, error)))?;
    Ok((owned.value, owned.residual))
}

/// Returns the object as readers of the request's version see it. By the conversion laws it is the
/// written object. Returns `None` without a conversion, for aliases, for webhook conversion, for
/// bundles that lose or drop fields, and for built-in kinds, whose strategies change the object
/// afterwards.
fn shown(context: &Context<'_>, new: Json) -> Option<Json> {
    let Context { served, version, .. } = context;
    let custom = served.origin != Origin::System && served.alias.is_none() && served.api.webhook.is_none();
    let converted = version.name != served.api.storage_version().name;
    (custom && converted && served.api.bundle.shows_what_is_written()).then_some(new)
}

/// Returns the errors of the storage version's schema for an object that was written in another
/// version. Without this check, a rule of one version would bind only the writers of that version.
/// The object is checked with its defaults, as readers see it. Errors that the old object already
/// had are tolerated.
fn errors_as_stored(context: &Context<'_>, stored: &Json, old: Option<&Entry>) -> Result<Vec<FieldError>> {
    let Context { served, version, .. } = context;
    let storage = served.api.storage_version();
    if version.name == storage.name {
        return Ok(Vec::new());
    }
    let mut shown = stored.clone();
    insula_schema::default(&mut shown, &storage.schema);
    Ok(match old {
        None => insula_schema::validate(&shown, &storage.schema),
        Some(old) => {
            let was = stored::value(served, old, &storage.name)?;
            insula_schema::validate_update(&shown, &was, &storage.schema).errors
        }
    })
}

/// Returns [`UNMARKED`] if the stored object lacks defaults of the storage version, so that reads
/// default it. Only a write through another version can leave out defaults.
fn mark(context: &Context<'_>, stored: &Json) -> Option<u64> {
    let storage = context.served.api.storage_version();
    if context.version.name == storage.name || !context.served.api.bundle.storage_has_defaults() {
        return None;
    }
    let mut shown = stored.clone();
    insula_schema::default(&mut shown, &storage.schema);
    (shown != *stored).then_some(UNMARKED)
}

/// Sets the server-owned metadata of a new object and completes its name.
fn own_new_metadata(context: &Context<'_>, new: &mut Json, now: Timestamp) -> Result<()> {
    let Context {
        served,
        cluster,
        namespace,
        rng,
        ..
    } = context;
    let metadata = metadata_of(new);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "generation",
        "resourceVersion",
    ] {
        metadata.remove(field);
    }
    metadata::prune(metadata);
    if served.api.scope == ScopeKind::Namespaced {
        metadata.insert("namespace".into(), json!(namespace));
    } else {
        metadata.remove("namespace");
    }
    let text = |field: &str| {
        metadata
            .get(field)
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (mut name, prefix) = (text("name"), text("generateName"));
    if name.is_empty() && !prefix.is_empty() {
        name = generated_name(&prefix, *rng);
        metadata.insert("name".into(), json!(name));
    }
    if name.is_empty() {
        let at = FieldPath::new("metadata").child("name");
        return Err(served
            .api
            .invalid("", vec![FieldError::required(&at, "name or generateName is required")]));
    }
    metadata.insert("uid".into(), json!(Uid::random(*rng).to_string()));
    metadata.insert("creationTimestamp".into(), json!(now.to_string()));
    if served.api.strategy.traits().generation {
        metadata.insert("generation".into(), json!(1));
    }
    annotate_cluster(metadata, cluster);
    Ok(())
}

/// Returns the old object with the new status. Some built-in kinds also take labels and
/// annotations.
fn status_only(served: &Served, new: Json, old: &Json) -> Json {
    let mut merged = old.clone();
    match new.get("status") {
        Some(status) => merged["status"] = status.clone(),
        None => remove(&mut merged, "status"),
    }
    if served.api.strategy.traits().status_takes_metadata {
        for field in ["labels", "annotations"] {
            match new["metadata"].get(field) {
                Some(value) => merged["metadata"][field] = value.clone(),
                None => {
                    metadata_of(&mut merged).remove(field);
                }
            }
        }
    }
    merged
}

fn finalizers_only(new: &Json, old: &Json) -> Json {
    let mut merged = old.clone();
    if !merged["spec"].is_object() {
        merged["spec"] = json!({});
    }
    match new["spec"].get("finalizers") {
        Some(finalizers) => merged["spec"]["finalizers"] = finalizers.clone(),
        None => remove(&mut merged["spec"], "finalizers"),
    }
    merged
}

pub(crate) fn keep_old_metadata(context: &Context<'_>, new: &mut Json, old: &Json) {
    let old = &old["metadata"];
    let metadata = metadata_of(new);
    metadata::prune(metadata);
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    metadata.remove("resourceVersion");
    for field in ["name", "namespace", "uid", "creationTimestamp", "generation"] {
        match old.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        if !metadata.contains_key(field)
            && let Some(value) = old.get(field)
        {
            metadata.insert(field.into(), value.clone());
        }
    }
    annotate_cluster(metadata, context.cluster);
}

fn count_generation(served: &Served, version: &ApiVersion, new: &mut Json, old: &Json, part: Part) {
    if !served.api.strategy.traits().generation || part.is_of_status() {
        return;
    }
    let counts = |field: &str| field != "metadata" && !(field == "status" && version.status);
    let fields = |object: &Json| -> Vec<(String, Json)> {
        let map = object.as_object().into_iter().flatten();
        map.filter(|(field, _)| counts(field))
            .map(|(field, value)| (field.clone(), value.clone()))
            .collect()
    };
    let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
    let grows = fields(new) != fields(old);
    metadata_of(new).insert("generation".into(), json!(generation + i64::from(grows)));
}
