//! Selection of objects by labels and fields.

use crate::{deps::Deps, representation::prefetch};
use insula_access::Target;
use insula_api::{FieldSelector, Json, LabelSelector, Labels, ObjectKey};
use insula_catalog::{Error, Result, ScopeKind, exports::ExportName, stored};
use insula_store::{Entry, Snapshot};
use std::ops::ControlFlow;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// Maximum objects in a batch that a webhook converts for a selector.
const BATCH_OBJECTS_MAX: usize = 500;
/// Maximum bytes of stored objects in such a batch, rounded up to a whole object.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// The selectors of a list or watch.
#[derive(Clone, Copy)]
pub(super) struct Selectors<'a> {
    pub(super) labels: &'a LabelSelector,
    pub(super) fields: &'a FieldSelector,
}

/// The states that a read depends on.
#[derive(Clone, Copy)]
pub(super) struct States<'a> {
    /// The present, at which the caller must see an object.
    pub(super) now: &'a Snapshot,
    /// The state that is read, at which the caller must have seen the object too.
    pub(super) read: &'a Snapshot,
}

impl States<'_> {
    /// Returns true if the state that is read is older than the present.
    pub(super) fn is_past(&self) -> bool {
        self.read.revision() < self.now.revision()
    }
}

/// The start of a selection, and its extent as far as it is known.
#[derive(Clone, Copy)]
pub(super) struct Extent<'a> {
    /// The key after which the selection begins.
    pub(super) after: Option<&'a ObjectKey>,
    /// The number of objects that the caller visits at most.
    pub(super) wanted: usize,
}

/// Calls `visit` on the visible objects that the selectors match, in key order, until it breaks.
///
/// If a field selector reads objects that a webhook converts, the webhook gets them in batches.
/// The first batch has as many objects as the caller wants; each further one has twice as many, so
/// that a selector with few matches does not cost a call for each match. Objects that metadata
/// alone excludes are not converted.
///
/// ```text
/// limit=2, 9 objects, fieldSelector=spec.size=1
/// batch 1: 3 objects (the page, and one to know that there is a next page)
/// batch 2: up to 6 objects, only if batch 1 had fewer than 3 matches
/// ```
pub(super) async fn for_each_selected(
    deps: &Deps,
    states: States<'_>,
    target: &Target,
    selectors: Selectors<'_>,
    extent: Extent<'_>,
    mut visit: impl FnMut(&Entry) -> ControlFlow<()>,
) -> Result<()> {
    let mut then = target.looking(&deps.catalog, states.read);
    let mut today = states.is_past().then(|| target.looking(&deps.catalog, states.now));
    let mut sees = |entry: &Entry| {
        then.sees_entry(entry)
            && today
                .as_mut()
                .is_none_or(|today| today.still_sees(&entry.key, &entry.object))
    };
    let meter = &target.served.meter;
    let price = (1 + selectors.labels.comparisons() + selectors.fields.terms.len()) as u64;
    let in_batches = target.served.pending_calls.is_some() && looks_inside(selectors.fields);
    let mut objects_max = extent.wanted.clamp(1, BATCH_OBJECTS_MAX);
    let consumers = |export: &ExportName| export.consumers(states.now);
    for scope in target.ranges(states.now, consumers) {
        let mut after = extent.after.cloned();
        loop {
            let mut batch = Batch::default();
            let mut end = ControlFlow::Continue(());
            states.read.for_each_after(&scope, after.as_ref(), |entry| {
                if let Err(ended) = meter.spend(price) {
                    end = ControlFlow::Break(Err(ended.into()));
                    return ControlFlow::Break(());
                }
                if !sees(entry) || !selects_metadata(target, selectors, entry) {
                    return ControlFlow::Continue(());
                }
                if in_batches {
                    return batch.push(entry, objects_max);
                }
                end = match selects_shown(target, selectors, entry) {
                    Ok(true) => visit(entry).map_break(Ok),
                    Ok(false) => ControlFlow::Continue(()),
                    Err(error) => ControlFlow::Break(Err(error)),
                };
                match end {
                    ControlFlow::Continue(()) => ControlFlow::Continue(()),
                    ControlFlow::Break(_) => ControlFlow::Break(()),
                }
            });
            if let ControlFlow::Break(end) = end {
                return end;
            }
            // The walk may have ended before it has shown everything.
            meter.check()?;
            prefetch(target, batch.entries.iter()).await;
            for entry in &batch.entries {
                if selects_shown(target, selectors, entry)? && visit(entry).is_break() {
                    return Ok(());
                }
            }
            match batch.entries.pop() {
                Some(last) if batch.is_full => after = Some(last.key),
                _ => break,
            }
            objects_max = (2 * objects_max).min(BATCH_OBJECTS_MAX);
        }
    }
    Ok(())
}

/// Objects that a webhook converts in one call.
#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    bytes: usize,
    is_full: bool,
}

impl Batch {
    /// Adds an object, and breaks if the batch is full.
    fn push(&mut self, entry: &Entry, objects_max: usize) -> ControlFlow<()> {
        self.bytes += entry.object.size();
        self.entries.push(entry.clone());
        self.is_full = self.entries.len() >= objects_max || self.bytes >= BATCH_BYTES_MAX;
        match self.is_full {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Returns true if an object satisfies both selectors. Fields outside metadata, and labels that
/// rules write or move, are read in the requested version.
pub(super) fn selects(target: &Target, selectors: Selectors<'_>, entry: &Entry) -> Result<bool> {
    Ok(selects_metadata(target, selectors, entry) && selects_shown(target, selectors, entry)?)
}

/// Returns true if an object satisfies the selectors as far as they read stored metadata, which
/// needs no conversion: its labels, its name and its namespace.
pub(super) fn selects_metadata(target: &Target, selectors: Selectors<'_>, entry: &Entry) -> bool {
    let meta = &entry.object.meta;
    (selectors.labels.matches(&meta.labels) || converts_labels(target, selectors.labels, entry))
        && selectors.fields.terms.iter().all(|(field, want, equal)| {
            let value = match field.as_str() {
                NAME => &*meta.name,
                NAMESPACE => &*meta.namespace,
                _ => return true,
            };
            (value == want) == *equal
        })
}

/// Returns true if the requested version may show other labels of an object than are stored, and
/// the selector looks at one of them. The labels that a webhook makes are not looked at.
fn converts_labels(target: &Target, labels: &LabelSelector, entry: &Entry) -> bool {
    !labels.is_empty() && *entry.object.version() != *target.version && {
        let served = target.serving(&entry.key);
        labels.keys().any(|key| served.api.bundle.rules_change_label(key))
    }
}

/// Returns true if an object in the requested version satisfies the terms of the selectors that
/// need it.
fn selects_shown(target: &Target, selectors: Selectors<'_>, entry: &Entry) -> Result<bool> {
    let Selectors { labels, fields } = selectors;
    if converts_labels(target, labels, entry) {
        // What the version cannot show is known by its stored labels, as for metadata alone.
        let shown = stored::value(&target.serving(&entry.key), entry, &target.version);
        let matches = match &shown {
            Ok(object) => labels.matches(&labels_of(object)),
            // Nothing is known of the object.
            Err(Error::Ended(ended)) => return Err((*ended).into()),
            Err(_) => labels.matches(&entry.object.meta.labels),
        };
        if !matches {
            return Ok(false);
        }
    }
    selects_fields(target, fields, entry)
}

fn labels_of(object: &Json) -> Labels {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let text = |(key, value): (&String, &Json)| Some((key.as_str().into(), value.as_str()?.into()));
    labels.filter_map(text).collect()
}

/// Returns true if an object in the requested version satisfies the terms of a field selector that
/// need it.
fn selects_fields(target: &Target, fields: &FieldSelector, entry: &Entry) -> Result<bool> {
    if !looks_inside(fields) {
        return Ok(true);
    }
    let object = stored::value(&target.serving(&entry.key), entry, &target.version)?;
    let strategy = &target.served.api.strategy;
    Ok(fields
        .terms
        .iter()
        .filter(|term| !is_metadata(term))
        .all(|(path, want, equal)| {
            let value = strategy.selectable(&object, path);
            (value.unwrap_or_else(|| text_at(&object, path)) == *want) == *equal
        }))
}

/// Returns a scalar as text in the format of Go's `fmt.Sprint`, or an empty text if there is none.
fn text_at(body: &Json, path: &str) -> String {
    let mut at = body;
    for segment in path.split('.') {
        at = &at[segment];
    }
    match at {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        other => other.to_string(),
    }
}

/// Refuses fields that the resource does not select by.
pub(super) fn check_fields(target: &Target, fields: &FieldSelector) -> Result<()> {
    let namespaced = target.served.api.scope == ScopeKind::Namespaced;
    let built_in = target.served.api.strategy.traits().built_in;
    let selectable = &target.api_version()?.selectable;
    for (field, _, _) in &fields.terms {
        let known = field == NAME || (field == NAMESPACE && (namespaced || built_in)) || selectable.contains(field);
        if !known {
            return Err(Error::BadRequest(if built_in && selectable.is_empty() {
                format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {field}")
            }));
        }
    }
    Ok(())
}

/// Returns true if a field selector reads more than name and namespace, which are the same in all
/// versions.
pub(super) fn looks_inside(fields: &FieldSelector) -> bool {
    !fields.terms.iter().all(is_metadata)
}

fn is_metadata((field, ..): &(String, String, bool)) -> bool {
    matches!(field.as_str(), NAME | NAMESPACE)
}
