//! `metadata.managedFields`: the effect of a write on the owners of an object's fields.
//!
//! The rules are `insula_apply`'s. This module supplies their input: the object before and after
//! the write in the request's version, without the fields that only this server sets, and the
//! object in the versions of its other owners.

use crate::{
    context::{By, Context},
    metadata::drop_shown_labels,
};
use insula_api::{
    Json, Object,
    names::{annotations::ACCEPTED_ONCE, groups},
};
use insula_apply::{Element, FieldSet, Managers, OnConflict, Retirement, Shape, Versions, Writer};
use insula_catalog::{
    ApiVersion, Error, Origin, Part, Respelled, Result, Served,
    object::{CLUSTER_ANNOTATION, group_version, metadata_of},
    stored,
};
use insula_conversion::Stored;
use insula_store::Entry;
use serde_json::json;

/// Takes the list of owners out of an object as it was sent.
pub(crate) fn take(object: &mut Json) -> Json {
    let sent = metadata_of(object).remove("managedFields");
    sent.unwrap_or_default()
}

/// Sets the owners of a new object.
pub(crate) fn created(context: &Context<'_>, new: &mut Json) {
    let managers = match context.by {
        By::Applied(managers) => managers.clone(),
        By::Update(manager) => {
            let (bare, word) = (Bare::take(new), Word::take(context.served, new));
            let before = nothing(context);
            let owned = update(context, manager, &before, new, Managers::default(), None);
            word.put_back(new);
            bare.put_back(new);
            owned.unwrap_or_default()
        }
    };
    set(new, managers.to_json());
}

/// Returns the fields that nobody owns at creation. Structs in Go have some fields even when they
/// are empty.
fn nothing(context: &Context<'_>) -> Json {
    let mut nothing = json!({});
    if context.served.api.strategy.traits().built_in {
        insula_schema::default(&mut nothing, &context.version.schema);
    }
    if let Some(map) = nothing.as_object_mut() {
        map.retain(|_, value| is_hollow(value));
    }
    nothing
}

/// Returns true for an object that contains only empty objects, at any depth.
fn is_hollow(value: &Json) -> bool {
    value.as_object().is_some_and(|map| map.values().all(is_hollow))
}

/// Sets the owners of a changed object. `sent` is the list in the request. Clients may edit it, but
/// not through a subresource. An object without known owners stays without until a client applies.
pub(crate) fn updated(context: &Context<'_>, old: &Entry, mut old_seen: Json, new: &mut Json, sent: Json) {
    let live = take(&mut old_seen);
    metadata_of(&mut old_seen).remove("resourceVersion");
    let word = Word::take(context.served, new);
    let owners = owners(context, old, &old_seen, &live, new, &sent);
    word.put_back(new);
    set(new, owners.unwrap_or(live));
}

/// Returns the new list of owners, or `None` if it does not change.
fn owners(context: &Context<'_>, old: &Entry, old_seen: &Json, live: &Json, new: &Json, sent: &Json) -> Option<Json> {
    let same = old_seen == new;
    let manager = match context.by {
        By::Applied(managers) => {
            let known = Managers::read(live).unwrap_or_default();
            // An apply whose values a default replaces changes nothing, however often it is
            // repeated.
            let idle = same && managers.same_but_for_times(&known);
            return (!idle).then(|| managers.to_json());
        }
        By::Update(manager) => manager,
    };
    let edited = context.part == Part::Main && sent != live;
    let cleared = *sent == json!([]) && context.served.api.strategy.traits().built_in;
    if edited && (Managers::is_reset(sent) || cleared) {
        return Some(Json::Null);
    }
    let given = edited
        .then(|| Managers::read(sent))
        .flatten()
        .filter(|given| !given.is_empty());
    if same && given.is_none() {
        return None;
    }
    let managers = given
        .or_else(|| Managers::read(live))
        .filter(|known| !known.is_empty())?;
    let managers = update(context, manager, old_seen, new, managers, Some(old))?;
    Some(managers.to_json())
}

fn update(
    context: &Context<'_>,
    manager: &str,
    old: &Json,
    new: &Json,
    managers: Managers,
    entry: Option<&Entry>,
) -> Option<Managers> {
    let api_version = context.served.api_version(&context.version.name);
    let ignored = ignored(context.version, context.part, [old, new]);
    let writer = writer(context, manager, &api_version, &ignored);
    let versions = Seen {
        served: context.served,
        old: entry,
    };
    // Owners that cannot be compared in their version stay as they are, because the write itself is
    // valid.
    insula_apply::update(old, new, managers, &writer, &versions).ok()
}

/// Applies a configuration to an object, or to an empty object if there is none.
///
/// # Errors
/// The configuration conflicts with other managers or does not fit the schema, or a version cannot
/// be converted.
pub(crate) fn apply(
    context: &Context<'_>,
    manager: &str,
    old: Option<&Entry>,
    config: &Json,
    on_conflict: OnConflict,
) -> Result<(Json, Managers)> {
    let mut live = match old {
        Some(entry) => stored::value(context.served, entry, &context.version.name)?,
        None => json!({}),
    };
    let known = match old {
        Some(_) => Managers::read(&take(&mut live)).unwrap_or_default(),
        None => Managers::default(),
    };
    let bare = old.map(|_| Bare::take(&mut live));
    let mut config = config.clone();
    drop_shown_labels(&mut config);
    let (asked, word) = (Bare::take(&mut config), Word::take(context.served, &mut config));
    let api_version = context.served.api_version(&context.version.name);
    let ignored = ignored(context.version, context.part, [&live, &config]);
    let writer = writer(context, manager, &api_version, &ignored);
    let versions = Seen {
        served: context.served,
        old,
    };
    let applied = insula_apply::apply(&live, &config, &known, &writer, on_conflict, &versions).map_err(|error| {
        use insula_apply::ApplyError;
        match error {
            ApplyError::Conflicts(conflicts) => Error::ApplyConflict(conflicts),
            ApplyError::Mistyped(why) => Error::Mistyped(format!(
                "failed to create typed patch object ({}/{}; {}, Kind={}): {why}",
                config["metadata"]["namespace"].as_str().unwrap_or_default(),
                config["metadata"]["name"].as_str().unwrap_or_default(),
                group_version(&api_version),
                context.served.names().kind,
            )),
            ApplyError::Version(why) => Error::Conversion(why),
        }
    })?;
    let mut object = applied.object.unwrap_or(live);
    if let Some(bare) = bare {
        bare.put_back(&mut object);
        // A revision in the configuration is a precondition of the write.
        if let Some(revision) = asked.revision {
            metadata_of(&mut object).insert("resourceVersion".into(), revision);
        }
    }
    word.put_back(&mut object);
    Ok((object, applied.managers))
}

fn writer<'a>(context: &Context<'_>, manager: &'a str, api_version: &'a str, ignored: &'a FieldSet) -> Writer<'a> {
    Writer {
        manager,
        subresource: match context.part {
            Part::Main => "",
            Part::Status => "status",
            Part::Approval => "approval",
            Part::Scale => "scale",
            Part::Finalizers => "finalize",
        },
        api_version,
        ignored,
        now: context.clock.now(),
    }
}

/// Returns the fields that a write to this part does not change and therefore does not own.
fn ignored(version: &ApiVersion, part: Part, objects: [&Json; 2]) -> FieldSet {
    let mut ignored = FieldSet::default();
    match part {
        Part::Main | Part::Scale | Part::Finalizers if version.status => ignored.insert(&[Element::field("status")]),
        Part::Main | Part::Scale | Part::Finalizers => {}
        Part::Status | Part::Approval => {
            let fields = objects
                .into_iter()
                .filter_map(Json::as_object)
                .flat_map(|object| object.keys());
            for field in fields.filter(|field| *field != "status") {
                ignored.insert(&[Element::field(field)]);
            }
        }
    }
    ignored
}

fn set(object: &mut Json, owners: Json) {
    let metadata = metadata_of(object);
    match owners.as_array().is_some_and(|list| !list.is_empty()) {
        true => metadata.insert("managedFields".into(), owners),
        false => metadata.remove("managedFields"),
    };
}

/// The fields that are removed from an object while ownership is computed: its revision, and the
/// cluster annotation that this server sets on every object.
struct Bare {
    revision: Option<Json>,
    cluster: Option<Json>,
}

impl Bare {
    fn take(object: &mut Json) -> Bare {
        let revision = metadata_of(object).remove("resourceVersion");
        let cluster = take_annotation(object, CLUSTER_ANNOTATION);
        Bare { revision, cluster }
    }

    fn put_back(self, object: &mut Json) {
        let metadata = metadata_of(object);
        if let Some(revision) = self.revision {
            metadata.insert("resourceVersion".into(), revision);
        }
        if let Some(cluster) = self.cluster {
            metadata.entry("annotations").or_insert_with(|| json!({}))[CLUSTER_ANNOTATION] = cluster;
        }
    }
}

/// The annotation of the parts of a release that is for one write alone: admission takes it out, so
/// nobody owns it.
struct Word(Option<Json>);

impl Word {
    fn take(served: &Served, object: &mut Json) -> Word {
        const PARTS: [&str; 3] = ["apiresourceschemas", "apiconversions", "apiexports"];
        let is_part = **served.group() == *groups::APIS && PARTS.contains(&&*served.names().plural);
        Word(is_part.then(|| take_annotation(object, ACCEPTED_ONCE)).flatten())
    }

    fn put_back(self, object: &mut Json) {
        if let Some(word) = self.0 {
            let annotations = metadata_of(object).entry("annotations");
            annotations.or_insert_with(|| json!({}))[ACCEPTED_ONCE] = word;
        }
    }
}

/// Takes an annotation out, and with the last one the map.
fn take_annotation(object: &mut Json, name: &str) -> Option<Json> {
    let metadata = metadata_of(object);
    let annotations = metadata.get_mut("annotations").and_then(Json::as_object_mut)?;
    let taken = annotations.remove(name)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(taken)
}

/// The versions in which managers own fields of an object. Parsed once per revision.
struct OwnedIn(Vec<Box<str>>);

impl OwnedIn {
    fn read(object: &Object) -> OwnedIn {
        let mut versions = Vec::new();
        let value = object.body_value();
        for entry in value["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let version: Box<str> = entry["apiVersion"].as_str().unwrap_or_default().into();
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        OwnedIn(versions)
    }
}

/// Returns true if a manager owns fields in a version that is no longer served. Built-in kinds are
/// exempt.
pub(crate) fn are_stale(served: &Served, entry: &Entry) -> bool {
    let versions = Seen { served, old: None };
    served.origin != Origin::System
        && entry
            .object
            .parsed(OwnedIn::read)
            .0
            .iter()
            .any(|version| !versions.is_served(version))
}

/// Records in the storage version the fields that managers own in versions no longer served.
/// `value` is the object to store, and `entry` is the stored object.
pub(crate) fn retire(served: &Served, entry: &Entry, value: &mut Json) -> Result<()> {
    let storage = &served.api.storage_version().name;
    let mut live = stored::value(served, entry, storage)?;
    let Some(managers) = Managers::read(&take(&mut live)) else {
        return Ok(());
    };
    Bare::take(&mut live);
    let whole = Seen {
        served,
        old: Some(entry),
    };
    let retirement = Retirement {
        live: &live,
        to: &served.api_version(storage),
        whole: &whole,
        parts: &Seen { served, old: None },
    };
    let managers = insula_apply::retire(managers, |version| whole.is_served(version), &retirement);
    set(value, managers.to_json());
    Ok(())
}

/// The conversion of an object between all versions of its API.
struct Seen<'a> {
    served: &'a Served,
    /// The stored object, which supplies the fields that a version cannot show.
    old: Option<&'a Entry>,
}

impl Seen<'_> {
    fn version(&self, api_version: &str) -> Option<&ApiVersion> {
        let (group, version) = split(api_version);
        let api = &self.served.api;
        match self.spelling(group) {
            Some(spelling) => spelling.api.version(version),
            None if *api.group == *group || **self.served.group() == *group => api.version(version),
            None => None,
        }
    }

    /// Returns the spelling of the fields in a group, if it differs from the stored one.
    fn spelling(&self, group: &str) -> Option<&Respelled> {
        let spelling = self.served.api.spelling.get()?;
        (*spelling.api.group == *group).then_some(&**spelling)
    }

    fn is_served(&self, api_version: &str) -> bool {
        self.version(api_version).is_some_and(|version| version.served)
    }
}

/// Group and version of an `apiVersion`.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl Versions for Seen<'_> {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        Some(Shape::for_schema(&self.version(api_version)?.schema))
    }

    fn convert(&self, object: &Json, from_version: &str, to_version: &str) -> std::result::Result<Json, String> {
        if from_version == to_version {
            return Ok(object.clone());
        }
        let (Some(from), Some(to)) = (self.version(from_version), self.version(to_version)) else {
            return Err(format!("{from_version} or {to_version} is not served"));
        };
        let served = self.served;
        match (self.spelling(split(from_version).0), self.spelling(split(to_version).0)) {
            (None, Some(spelling)) => return Ok(spelling.shown(object.clone())),
            (Some(spelling), None) => return Ok(spelling.stored(object.clone(), &served.api)),
            (None, None) | (Some(_), Some(_)) => {}
        }
        let own = stored::unalias(served, object);
        let own = own.as_ref().unwrap_or(object);
        let value = self.old.map(|old| old.object.body_value());
        let stored = self.old.zip(value.as_ref()).map(|(old, value)| Stored {
            value,
            version: old.object.version(),
            residual: old.object.residual(),
        });
        let seen = match served.asks(&from.name, &to.name) {
            // A webhook stores no residual, so one call is enough.
            true => served.convert(own, &to.name),
            false => served
                .put(own, &from.name, stored)
                .and_then(|owned| served.get(owned.stored(&served.api.storage_version().name), &to.name)),
        };
        let mut seen = seen.map_err(|failed| failed.to_string())?;
        if !served.asks(&from.name, &to.name) {
            served.api.bundle.keep_metadata(own, &mut seen);
        }
        seen["apiVersion"] = Json::String(served.api_version(&to.name));
        seen["kind"] = Json::String(served.names().kind.to_string());
        Ok(seen)
    }
}
