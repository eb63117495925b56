//! Admission of CustomResourceDefinitions: neither their group nor their annotations are reserved,
//! and they fit the conversion rules of the same name.

use crate::{
    kinds::{
        hidden,
        review::{Operation, Review, Rules},
        trial,
        usage::Usage,
    },
    publication::{Acceptance, NewVersions},
};
use insula_api::{FieldError, FieldPath, Json, Scope, aggregate, names::annotations::ACCEPTED_EFFECTS};
use insula_catalog::{Api, Error, ResourceRoute, Result, bundle, ids, parts};
use std::sync::Arc;

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| self::review(review, new, old),
    explain: |review, refusal| match refusal {
        Error::Invalid { subject, name, errors } => {
            let errors = explain(review, &name, errors);
            Error::Invalid { subject, name, errors }
        }
        refusal => refusal,
    },
    ..Rules::new("apiextensions.k8s.io", &["customresourcedefinitions"])
};

fn review(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    if review.operation == Operation::Create {
        check_place(review, new, &new["spec"])?;
    }
    check_annotations(review, new)?;
    let accepted = hidden::accepted(new, |why| review.warn(why));
    if let Some(old) = old {
        check_stored_versions(review, new, old)?;
    }
    if old.is_none_or(|old| old["spec"] != new["spec"]) {
        check_rules(review, new, old, &accepted)?;
    } else if old.is_some_and(|old| word(old) != word(new)) {
        warn_of_word(review, new);
    }
    Ok(())
}

/// Returns the annotation that accepts effects.
fn word(definition: &Json) -> &Json {
    &definition["metadata"]["annotations"][ACCEPTED_EFFECTS]
}

/// Warns of a word that comes after its definition, and is not enough for that to be served.
fn warn_of_word(review: &Review<'_>, new: &Json) {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if bundle::has_webhook(new) || parts::joined(review.snapshot, review.cluster, name).is_some() {
        return;
    }
    if let Some(api) = without_rules(review, new) {
        warn_of_waiting(review, new, &api);
    }
}

/// Refuses to remove a version from `status.storedVersions` while objects are stored in it.
fn check_stored_versions(review: &Review<'_>, new: &Json, old: &Json) -> Result<()> {
    let versions = |object: &Json| {
        object["status"]["storedVersions"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let kept = versions(new);
    let gone: Vec<Json> = versions(old)
        .into_iter()
        .filter(|version| !kept.contains(version))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let usage = Usage::of_definition(
        (review.snapshot, review.cluster),
        name,
        |_| true,
        |object| gone.iter().any(|version| version == object.version()),
    );
    if usage.is_empty() {
        return Ok(());
    }
    let at = FieldPath::new("status").child("storedVersions");
    let stored: Vec<&str> = usage.versions.iter().map(String::as_str).collect();
    let why = format!(
        "{} are stored in {}: a StorageVersionMigration of this resource writes them anew, and takes it out",
        usage.message(&review.names()),
        stored.join(", ")
    );
    let error = FieldError::invalid(&at, &Json::Array(kept), why);
    Err(review.served.api.invalid(name, vec![error]))
}

/// Adds the number of stored objects to the error for a version that cannot be removed yet. Applies
/// only to definitions with an APIConversion, whose objects the server migrates itself. Errors for
/// other definitions are the same as in Kubernetes.
fn explain(review: &Review<'_>, name: &str, mut errors: Vec<FieldError>) -> Vec<FieldError> {
    for error in &mut errors {
        if !error.field.as_str().starts_with("status.storedVersions[") {
            continue;
        }
        let version = error.value.trim_matches('"');
        let usage = Usage::of_definition(
            (review.snapshot, review.cluster),
            name,
            |route| route.bundle.is_some(),
            |object| object.version() == version,
        );
        if !usage.is_empty() {
            let words = usage.message(&review.names());
            error.detail += &format!("; still to be written anew: {words}, see the condition StorageMigrating");
        }
    }
    errors
}

/// Checks that the APIConversion of the definition's name still converts between its versions. If
/// it does not, a changed definition waits for it, so that the files of one folder may come in any
/// order: what was served before is served on. Warns of what a change does to stored objects, with
/// rules and without.
fn check_rules(review: &Review<'_>, new: &Json, old: Option<&Json>, accepted: &[Acceptance]) -> Result<()> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let warn_of_effects = |api: &Arc<Api>| {
        let served = review
            .catalog
            .resolve(review.snapshot, review.cluster, &api.group, &api.names.plural);
        if let (Some(served), Some(old)) = (served, old) {
            let scope = Scope::cluster(served.resource_id(), review.cluster.clone());
            trial::warn_of_effects(review, (&served.api, api), &scope, accepted);
            warn_of_unknown_effects(review, old, (&served.api, api), &scope);
        }
    };
    let Some(rules) = parts::joined(review.snapshot, review.cluster, name) else {
        let Some(api) = without_rules(review, new) else {
            return Ok(());
        };
        warn_of_effects(&api);
        if !bundle::has_webhook(new) {
            warn_of_new_versions(review, &api, old);
            if old.is_some_and(|old| !bundle::has_webhook(old)) {
                warn_of_waiting(review, new, &api);
            }
        }
        return Ok(());
    };
    let bundle = bundle::of_definition(new, &rules);
    match review.catalog.prove(&bundle, &review.served.meter) {
        Ok(api) => {
            super::apiconversion::warn_of_rules(review, &api);
            warn_of_effects(&api);
            Ok(())
        }
        Err(errors) if old.is_some() => {
            review.warn(format!(
                "what was served before is served on, until the APIConversion of this name fits: {}",
                aggregate(&errors)
            ));
            Ok(())
        }
        Err(mut errors) => {
            for error in &mut errors {
                error.detail = format!("{} (in the APIConversion of this name: change it first)", error.detail);
            }
            Err(review.served.api.invalid(name, errors))
        }
    }
}

/// Warns of versions whose view of a stored object is a webhook's, before or after: admission asks
/// none, so their effects are not among those that it tells.
fn warn_of_unknown_effects(review: &Review<'_>, old: &Json, (before, after): (&Api, &Api), scope: &Scope) {
    if before.webhook.is_none() && after.webhook.is_none() {
        return;
    }
    let mut stored = old["status"]["storedVersions"].as_array().into_iter().flatten();
    let is_asked = |stored: &Json| {
        before
            .bundle
            .served()
            .any(|version| stored != version && serves(after, version))
    };
    let has_objects = || !review.snapshot.range(scope, None, 1).is_empty();
    if stored.any(is_asked) && has_objects() {
        review.warn(
            "a conversion webhook decides what versions show of objects that are stored in another one: what the \
             change does to that is not known",
        );
    }
}

fn serves(api: &Api, version: &str) -> bool {
    api.bundle.served().any(|served| served == version)
}

/// Compiles a definition without rules as it is to be served.
fn without_rules(review: &Review<'_>, new: &Json) -> Option<Arc<Api>> {
    let route = review.snapshot.get(&ids::route_of_definition(review.cluster, new));
    let kept = route.and_then(|route| {
        let route = route.object.parsed(ResourceRoute::read);
        bundle::kept(review.snapshot, &route, new)
    });
    review.catalog.compile(kept.as_ref().unwrap_or(new)).ok()
}

/// Warns of new versions that wait, because no rules say what becomes of values that stored objects
/// hold.
fn warn_of_waiting(review: &Review<'_>, new: &Json, api: &Arc<Api>) {
    let (snapshot, cluster) = (review.snapshot, review.cluster);
    let served = review.catalog.resolve(snapshot, cluster, &api.group, &api.names.plural);
    let Some(served) = served else { return };
    let meter = &review.served.meter;
    let Some(mut versions) = NewVersions::new((&served.api, api), new, meter) else {
        return;
    };
    let scope = Scope::cluster(served.resource_id(), cluster.clone());
    versions.examine_slice((&review.names(), snapshot), &scope, None);
    if let Some(most) = versions.open() {
        review.warn(most.waits());
    }
}

/// Warns of fields that versions lack which a definition without rules gets: what such a version
/// writes is pruned by its schema, as in Kubernetes.
fn warn_of_new_versions(review: &Review<'_>, api: &Api, old: Option<&Json>) {
    let known = |name: &str| {
        let versions = old.and_then(|old| old["spec"]["versions"].as_array());
        versions.is_none_or(|versions| versions.iter().any(|version| version["name"] == name))
    };
    let breaks = match api.versions.iter().all(|version| known(&version.name)) {
        true => Vec::new(),
        false => api.bundle.breaks(),
    };
    if !breaks.is_empty() {
        review.warn(format!(
            "a client that writes back what a version shows takes away what it lacks: {}; an APIConversion of this \
             name, which may come first, keeps it",
            trial::first_named(&breaks)
        ));
    }
}

/// Refuses the annotations by which kcp tells bound definitions from a tenant's own: those of
/// `apis.kcp.io` and below.
fn check_annotations(review: &Review<'_>, new: &Json) -> Result<()> {
    let is_reserved = |key: &&String| {
        let domain = key.split_once('/').map_or(key.as_str(), |(domain, _)| domain);
        domain == "apis.kcp.io" || domain.ends_with(".apis.kcp.io")
    };
    let annotations = new["metadata"]["annotations"].as_object();
    let keys = annotations.into_iter().flatten().map(|(key, _)| key);
    let refused: Vec<String> = keys
        .filter(is_reserved)
        .map(|key| format!("{key} is a reserved annotation"))
        .collect();
    match refused.is_empty() {
        true => Ok(()),
        false => Err(review.forbid(new, aggregate(&refused))),
    }
}

/// Refuses definitions in the server's own groups, and of resources that every workspace has.
/// `spec` has the form of a CustomResourceDefinition's.
pub(super) fn check_place(review: &Review<'_>, new: &Json, spec: &Json) -> Result<()> {
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    let reserved = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    if reserved("apis.kcp.io") || reserved(ids::INTERNAL) {
        return Err(review.forbid(new, format!("{group} is a reserved group")));
    }
    if review.catalog.system().get(group, plural).is_some() {
        let why = format!("{plural}.{group} is served by every workspace already: choose another name or group");
        return Err(review.forbid(new, why));
    }
    Ok(())
}
