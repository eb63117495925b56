//! Effects of a release on stored objects, computed before it is published: what the schemas and
//! rules of before and of after say about each object, version by version.
//!
//! ```text
//! field-removed:widgets.example.io/v2:.spec.backup    31 objects in 31 workspaces
//! value-refused:widgets.example.io/v2:.spec.mode       2 objects in 1 workspace
//! ```

use insula_access::WorkspaceNames;
use insula_api::{FieldError, FieldErrorKind, Json, Object, ObjectKey, counted, names::effects as names};
use insula_catalog::Api;
use insula_conversion::{ConvertError, Stored, object_budget};
use insula_meter::Meter;
use insula_store::Entry;
use std::{collections::BTreeMap, fmt, sync::Arc};

mod acceptance;
mod becomes;
mod begun;
mod compare;
mod generations;
mod paths;
mod reasons;
mod times;
mod writes;

pub use acceptance::{Acceptance, is_open, unaccepted, unanswered};
pub use begun::NewVersions;
use compare::{added, differing};
pub use generations::{Effects, Serving};
use paths::{general, holds, is_field};
pub use times::Times;
use writes::Shown;

/// Effects of one API that are told apart.
const EFFECTS_MAX: usize = 256;
/// Words of each error about a bound, and of none about a rule.
const IN_BODY: &str = " in body ";
/// Objects that an effect names.
const NAMED_MAX: usize = 10;

/// An effect that hurts, with the objects that it reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Kind of the effect, one of [`insula_api::names::effects`].
    pub kind: &'static str,
    /// The API, `<plural>.<group>`.
    pub api: String,
    /// The version; empty for the whole API.
    pub version: String,
    /// Path of the field: `.spec.colors[].name`; empty for the whole version.
    pub path: String,
    /// Description of the change, for people.
    pub detail: String,
    /// Number of objects that it reaches.
    pub objects: usize,
    /// The first of them: `<namespace>/<name> in <workspace>`.
    pub named: Vec<String>,
    /// Number of objects by the name of their workspace.
    pub workspaces: BTreeMap<String, usize>,
    /// The times of the objects.
    pub times: Times,
    /// True if it is the reason of what objects show below the path, too.
    is_deep: bool,
    /// True for a CustomResourceDefinition of a workspace.
    is_local: bool,
    /// True if a write takes away what its version does not show, as in Kubernetes.
    is_lossy: bool,
    /// True if another served version has a field at the path.
    is_elsewhere: bool,
    /// True if its version begins to be served.
    begins: bool,
    /// Path of the list around it that is validated as a whole; empty without one.
    list: String,
    /// True if each write validates the value, also one that leaves it as it is.
    is_unforgiven: bool,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id(), self.description())
    }
}

impl Effect {
    fn new(kind: &'static str, api: &str, version: &str, path: &str, detail: impl Into<String>) -> Self {
        Effect {
            kind,
            api: api.to_owned(),
            version: version.to_owned(),
            path: path.to_owned(),
            detail: detail.into(),
            objects: 0,
            named: Vec::new(),
            workspaces: BTreeMap::new(),
            times: Times::default(),
            is_deep: true,
            is_local: false,
            is_lossy: false,
            is_elsewhere: false,
            begins: false,
            list: String::new(),
            is_unforgiven: false,
        }
    }

    /// Returns the word that it needs, if it reaches objects.
    pub fn consent(&self) -> names::Consent {
        names::consent(self.kind)
    }

    /// Returns the name by which somebody accepts it, such as
    /// `field-removed:widgets.example.io/v2:.spec.backup`.
    pub fn id(&self) -> String {
        let mut id = format!("{}:{}", self.kind, self.api);
        for (mark, part) in [("/", &self.version), (":", &self.path)] {
            if !part.is_empty() {
                id.push_str(mark);
                id.push_str(part);
            }
        }
        id
    }

    /// Returns what it is about, with the objects that it reaches and what becomes of them.
    pub fn description(&self) -> String {
        let detail = match &*self.detail {
            "" => String::new(),
            detail => format!("{detail}; "),
        };
        let named = self.named.first().map(|first| format!("; such as {first}"));
        format!(
            "{detail}{} in {}: {}{}",
            counted(self.objects, "object"),
            counted(self.workspaces.len(), "workspace"),
            self.becomes(),
            named.unwrap_or_default()
        )
    }

    /// Returns true if a definition of a workspace stops to serve a version.
    fn ends_local_version(&self) -> bool {
        self.is_local && self.kind == names::VERSION_REMOVED
    }

    fn reach(&mut self, workspace: &str, key: &ObjectKey, times: &Times) {
        self.objects += 1;
        self.times.add(times);
        *self.workspaces.entry(workspace.to_owned()).or_default() += 1;
        if self.named.len() < NAMED_MAX {
            let slash = if key.namespace.is_empty() { "" } else { "/" };
            self.named
                .push(format!("{}{slash}{} in {workspace}", key.namespace, key.name));
        }
    }
}

/// Adds the effects of another page of objects.
pub fn add(effects: &mut Vec<Effect>, more: Vec<Effect>) {
    for effect in more {
        match effects.iter_mut().find(|known| known.id() == effect.id()) {
            None => effects.push(effect),
            Some(known) => {
                known.objects += effect.objects;
                known.times.add(&effect.times);
                known.named.extend(effect.named);
                known.named.truncate(NAMED_MAX);
                for (workspace, objects) in effect.workspaces {
                    *known.workspaces.entry(workspace).or_default() += objects;
                }
            }
        }
    }
}

/// The effects of one API's release on those whom one generation of it serves, while their objects
/// are examined.
struct Generation {
    before: Arc<Api>,
    after: Arc<Api>,
    /// The generation on offer, for workspaces that stay with an older one.
    offered: Option<Arc<Api>>,
    api: String,
    found: Vec<Effect>,
    /// Number of effects that the schemas tell.
    told: usize,
    /// True for an API that is on offer no longer: each object is reached by the one effect.
    is_removed: bool,
    /// True for a definition without rules: its new versions are compared with what is stored.
    is_unruled: bool,
    /// Pays for the examination.
    meter: Meter,
}

/// An object that a version cannot show, with the position of the version among those served.
type Unreadable = (usize, ConvertError);

impl Generation {
    /// Begins with what schemas and versions alone tell.
    fn new(before: &Arc<Api>, after: &Arc<Api>, meter: &Meter) -> Self {
        let mut found = reasons::of_schemas(before, after);
        found.iter_mut().for_each(|effect| effect.place_in(after));
        let dot = if after.group.is_empty() { "" } else { "." };
        Generation {
            before: Arc::clone(before),
            after: Arc::clone(after),
            offered: None,
            api: format!("{}{dot}{}", after.names.plural, after.group),
            told: found.len(),
            found,
            is_removed: false,
            is_unruled: false,
            meter: meter.clone(),
        }
    }

    /// Examines a stored object: [`Effects::examine`].
    fn examine(&mut self, names: &WorkspaceNames, entry: &Entry) -> Result<(), ConvertError> {
        let value = entry.object.body_value();
        let mut unreadable = None;
        let reached = match self.is_removed {
            true => vec![0],
            false => self.of_object(&entry.object, &value, &mut unreadable),
        };
        self.reach(names, entry, &value, reached);
        unreadable.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Counts an object with the effects at some positions, each once.
    fn reach(&mut self, names: &WorkspaceNames, entry: &Entry, value: &Json, mut reached: Vec<usize>) {
        reached.sort_unstable();
        reached.dedup();
        if reached.is_empty() {
            return;
        }
        let workspace = names.name(&entry.key.cluster).to_string();
        let times = Times::of_object(value);
        for index in reached {
            self.found[index].reach(&workspace, &entry.key, &times);
        }
    }

    /// Returns an object as a version of after shows it. Notes the first version that cannot.
    fn shown(
        &self,
        object: &Object,
        value: &Json,
        version: &str,
        unreadable: &mut Option<Unreadable>,
    ) -> Result<Json, ConvertError> {
        let bundle = &self.after.bundle;
        let shown = bundle.get(stored(object, value), version, &mut object_budget(&self.meter));
        if let Err(error) = &shown {
            let position = bundle.served().position(|served| served == version);
            let position = position.unwrap_or(usize::MAX);
            if unreadable.as_ref().is_none_or(|(first, _)| position < *first) {
                *unreadable = Some((position, error.clone()));
            }
        }
        shown
    }

    /// Returns the positions of the effects that reach an object, some more than once.
    fn of_object(&mut self, object: &Object, value: &Json, unreadable: &mut Option<Unreadable>) -> Vec<usize> {
        // They concern whoever looks at an object; those of a field, at one that holds it.
        let broken = |(_, effect): &(usize, &Effect)| {
            let is_whole = matches!(
                effect.kind,
                names::CLIENT_BROKEN | names::COLUMN_REMOVED | names::NAME_REMOVED
            );
            is_whole && !is_field(&effect.path)
        };
        let all = self.found.iter().enumerate().filter(broken);
        let mut reached: Vec<usize> = all.map(|(index, _)| index).collect();
        let mut views = Vec::new();
        let (before, after) = (Arc::clone(&self.before), Arc::clone(&self.after));
        for version in before.bundle.served() {
            if !after.bundle.served().any(|other| other == version) {
                reached.extend(self.effect_at(names::VERSION_REMOVED, version, "", "it is served no longer"));
                continue;
            }
            if self.asks(object, version) {
                continue;
            }
            let shown = self.shown(object, value, version, unreadable);
            views.extend(self.compare((object, value), version, shown, &mut reached));
        }
        self.writes(&views, &mut reached);
        let is_new = |version: &&str| !before.bundle.served().any(|other| other == *version);
        for version in after.bundle.served().filter(is_new) {
            if self.asks(object, version) {
                continue;
            }
            match self.shown(object, value, version, unreadable) {
                Ok(shown) if self.is_unruled => self.begin((object, value), version, shown, &mut reached),
                Ok(_) => {}
                Err(error) => reached.extend(self.unreadable((object, value), version, &error)),
            }
        }
        let storage = after.bundle.storage();
        if !after.bundle.served().any(|served| served == storage) && !self.asks(object, storage) {
            let shown = self.shown(object, value, storage, unreadable);
            let before = &before.bundle;
            let is_new = !before.versions().any(|version| version == storage);
            let could = || {
                before
                    .get(stored(object, value), storage, &mut object_budget(&self.meter))
                    .is_ok()
            };
            // It cannot be stored again.
            reached.extend(
                shown
                    .err()
                    .filter(|_| is_new || could())
                    .and_then(|error| self.unreadable((object, value), storage, &error)),
            );
        }
        reached
    }

    /// Returns true if a webhook decides what a version shows of an object, before or after: that
    /// is not known here. The version that the object is stored in shows it without one.
    fn asks(&self, object: &Object, version: &str) -> bool {
        let has_webhook = |api: &Api| api.webhook.is_some();
        (has_webhook(&self.before) || has_webhook(&self.after)) && object.version() != version
    }

    /// Compares what a version shows of an object with what it showed before. Returns the new view,
    /// if both can be read.
    fn compare<'v>(
        &mut self,
        (object, value): (&Object, &Json),
        version: &'v str,
        shown: Result<Json, ConvertError>,
        reached: &mut Vec<usize>,
    ) -> Option<Shown<'v>> {
        let stored = stored(object, value);
        // What nobody can read now is no concern of the release.
        let mut was = self
            .before
            .bundle
            .get(stored, version, &mut object_budget(&self.meter))
            .ok()?;
        let mut is = match shown {
            Ok(is) => is,
            Err(error) => {
                reached.extend(self.unreadable((object, value), version, &error));
                return None;
            }
        };
        let schema = |api: &Api| api.bundle.schema(version).cloned();
        let (old, new) = (schema(&self.before)?, schema(&self.after)?);
        for (shown, schema) in [(&mut was, &old), (&mut is, &new)] {
            insula_schema::prune(shown, schema);
            insula_schema::default(shown, schema);
        }
        let broken = self.found.iter().enumerate().filter(|(_, effect)| {
            (effect.kind == names::CLIENT_BROKEN && is_field(&effect.path) || effect.kind == names::CHANGE_REFUSED)
                && effect.version == version
                && holds(&was, &effect.path)
        });
        reached.extend(broken.map(|(index, _)| index));
        let mut differing = differing(&was, &is, old.root());
        differing.extend(added(&was, &is, new.root()));
        for (kind, path) in &differing {
            reached.extend(self.effect_at(kind, version, path, ""));
        }
        let known = insula_schema::judge(&was, &old, &self.meter);
        for error in insula_schema::judge(&is, &new, &self.meter) {
            let place = insula_schema::place(&error);
            let path = general(place, new.root(), &is);
            let kind = match error.kind {
                FieldErrorKind::Required => names::FIELD_REQUIRED,
                _ => names::VALUE_REFUSED,
            };
            let reason = reasons::nearest(&self.found, kind, version, &path);
            if !known.iter().any(|was| was_refused(was, &error, reason.is_some())) {
                let detail = match error.kind {
                    // It says no more than its kind.
                    FieldErrorKind::Duplicate => "duplicate value".to_owned(),
                    _ => error.detail.replace(place, path.trim_start_matches('.')),
                };
                reached.extend(reason.or_else(|| self.effect_at(kind, version, &path, &detail)));
            }
        }
        let object = is;
        Some(Shown {
            version,
            object,
            differing,
        })
    }

    /// Returns the effect on an object that a version cannot show; `None` if the generation on
    /// offer could not either, for a workspace that stays with an older one.
    fn unreadable(&mut self, (object, value): (&Object, &Json), version: &str, error: &ConvertError) -> Option<usize> {
        let could_not = |offered: &Arc<Api>| {
            let bundle = &offered.bundle;
            bundle.versions().any(|known| known == version)
                && bundle
                    .get(stored(object, value), version, &mut object_budget(&self.meter))
                    .is_err()
        };
        if self.offered.as_ref().is_some_and(could_not) {
            return None;
        }
        let stored_in = object.version();
        if !self.after.bundle.versions().any(|known| known == stored_in) {
            return self.effect_at(names::VERSION_STORED, stored_in, "", "objects are stored in it");
        }
        let field = error.rule.as_ref().map_or("", |rule| &rule.source);
        self.effect_at(names::UNREADABLE, version, field, &error.to_string())
    }

    /// Returns the effect at a path: one that the schemas tell at it or around it, or a new one.
    fn effect_at(&mut self, kind: &'static str, version: &str, path: &str, detail: &str) -> Option<usize> {
        let known = reasons::nearest(&self.found, kind, version, path);
        if known.is_none() && self.found.len() >= self.told + EFFECTS_MAX && !path.is_empty() {
            return self.effect_at(kind, version, "", "fields that are not listed");
        }
        Some(known.unwrap_or_else(|| {
            let mut effect = Effect::new(kind, &self.api, version, path, detail);
            // What is below it has effects of its own.
            effect.is_deep = false;
            effect.place_in(&self.after);
            self.found.push(effect);
            self.found.len() - 1
        }))
    }
}

fn stored<'o>(object: &'o Object, value: &'o Json) -> Stored<'o> {
    Stored {
        value,
        version: object.version(),
        residual: object.residual(),
    }
}

/// Returns true if a schema refused before what it refuses now, also if it says so in other words:
/// a list of values that is another one, the message of a rule. `has_reason` is true if the schema
/// refuses more there than before.
fn was_refused(was: &FieldError, is: &FieldError, has_reason: bool) -> bool {
    if was == is {
        return true;
    }
    let is_there = was.kind == is.kind && insula_schema::place(was) == insula_schema::place(is);
    // Rules are told apart by their messages, and many can refuse one object.
    let is_rule = is.kind == FieldErrorKind::Invalid && !is.detail.contains(IN_BODY);
    is_there && !(is_rule && has_reason)
}

#[cfg(test)]
mod tests;
