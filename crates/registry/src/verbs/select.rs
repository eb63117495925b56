//! Selection of objects by labels and fields.

use crate::{deps::Deps, representation::prefetch};
use insula_access::Target;
use insula_api::{FieldSelector, Json, LabelSelector, ObjectKey};
use insula_catalog::{Error, Result, ScopeKind, stored};
use insula_store::{Entry, Snapshot};
use std::ops::ControlFlow;

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

/// Calls `visit` on the visible objects that the selectors match, in key order and after a key,
/// until it breaks.
pub(super) fn for_each_selected(
    deps: &Deps,
    states: States<'_>,
    target: &Target,
    selectors: Selectors<'_>,
    after: Option<&ObjectKey>,
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
    for scope in target.ranges(states.now) {
        let mut end = ControlFlow::Continue(());
        states.read.for_each_after(&scope, after, |entry| {
            if !sees(entry) {
                return ControlFlow::Continue(());
            }
            end = match selects(target, selectors, entry) {
                Ok(true) => visit(entry).map_break(Ok),
                Ok(false) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Err(error)),
            };
            end.is_break()
                .then_some(())
                .map_or(ControlFlow::Continue(()), ControlFlow::Break)
        });
        if let ControlFlow::Break(end) = end {
            return end;
        }
    }
    Ok(())
}

/// Returns true if an object satisfies both selectors. Fields outside metadata are read in the
/// requested version.
pub(super) fn selects(target: &Target, selectors: Selectors<'_>, entry: &Entry) -> Result<bool> {
    let meta = &entry.object.meta;
    if !selectors.labels.matches(&meta.labels) {
        return Ok(false);
    }
    let mut shown: Option<Json> = None;
    for (field, want, equal) in &selectors.fields.terms {
        let value = match field.as_str() {
            "metadata.name" => meta.name.to_string(),
            "metadata.namespace" => meta.namespace.to_string(),
            path => {
                let object = match shown.take() {
                    Some(object) => object,
                    None => stored::value(&target.serving(&entry.key), entry, &target.version)?,
                };
                let object = &*shown.insert(object);
                let strategy = &target.served.api.strategy;
                strategy
                    .selectable(object, path)
                    .unwrap_or_else(|| text_at(object, path))
            }
        };
        if (value == *want) != *equal {
            return Ok(false);
        }
    }
    Ok(true)
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
        let known = field == "metadata.name"
            || (field == "metadata.namespace" && (namespaced || built_in))
            || selectable.contains(field);
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

/// Returns true if a selector reads fields other than metadata, which may differ between versions.
pub(super) fn looks_inside(fields: &FieldSelector) -> bool {
    fields.terms.iter().any(|(field, ..)| !field.starts_with("metadata."))
}

/// Prefetches the webhook responses that a field selector needs, if a webhook converts the
/// objects.
pub async fn prepare_to_select(target: &Target, snapshot: &Snapshot, fields: &FieldSelector) {
    if target.served.questions.is_some() && looks_inside(fields) {
        let all = snapshot.range(&target.scope(), None, usize::MAX);
        prefetch(target, all.iter()).await;
    }
}
