//! Admission of APIConversions: their rules compile against the schema or definition of the same
//! name. If neither exists yet, only the form of the rules is checked.

use crate::{
    kinds::{
        hidden, release,
        review::{Review, Rules},
        trial,
        usage::{self, Usage},
    },
    publication::Acceptance,
};
use insula_api::{FieldError, FieldPath, Json, ObjectKey, ResourceId, Scope};
use insula_catalog::{Api, Result, bundle, exports::offering, ids, parts};
use insula_conversion::{RuleSet, parse_rules, proof::FINDINGS_SHOWN};
use insula_store::Entry;
use std::{collections::BTreeSet, sync::Arc};

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| self::review(review, new, old),
    deletion: review_deletion,
    ..Rules::new("apis.kcp.io", &["apiconversions"])
};

fn review(review: &Review<'_>, new: &mut Json, old: Option<&Json>) -> Result<()> {
    let accepted = hidden::accepted(new, |why| review.warn(why));
    hidden::forget_once(new);
    review_rules(review, new, old, &accepted)
}

fn review_rules(review: &Review<'_>, new: &Json, old: Option<&Json>, accepted: &[Acceptance]) -> Result<()> {
    let schema = parts::schema_of(new);
    if let Some(old) = old {
        if old["spec"] == new["spec"] && parts::schema_of(old) == schema {
            return Ok(());
        }
        // Rules that go to another schema are taken from this one.
        if parts::schema_of(old) != schema {
            review_deletion(review, old)?;
        }
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let invalid = |errors| review.served.api.invalid(name, parts::errors_for(name, errors));
    let joined = joined(review, name, schema, Some(new))
        .map_err(invalid)?
        .unwrap_or_default();
    let find = |resource| {
        let key = ObjectKey::cluster_scoped(resource, review.cluster.clone(), schema);
        review.snapshot.get(&key).map(|entry| entry.object.body_value())
    };
    let parsed = parse_rules(&joined["spec"], &FieldPath::new("spec"));
    let parsed = parsed.map_err(|malformed| malformed.errors);
    let prove = |bundle: &Json| {
        let api = review.catalog.prove(bundle, &review.served.meter)?;
        Ok(Some(Proved { api, waits: false }))
    };
    let api = match (find(ids::apiresourceschemas()), find(ids::customresourcedefinitions())) {
        (Some(schema), _) => prove(&bundle::of_schema(&schema, Some(&joined))),
        (None, Some(definition)) => prove_beside(review, &definition, &joined, parsed.as_ref().ok()),
        (None, None) => parsed.map(|_| None),
    };
    let Some(Proved { api, waits }) = api.map_err(invalid)? else {
        return Ok(());
    };
    if !waits {
        warn_of_rules(review, &api);
    }
    let scopes = scopes(review, schema, &api);
    // First rules, or another part of them, change what is read and written, too.
    if let Some(before) = present(review, schema) {
        let tried = hidden::tried(review, &scopes, &before, &api);
        if let Some(why) = hidden::refusal(&tried, accepted) {
            return Err(review.forbid(new, why));
        }
        tried.warn(review, accepted);
    }
    if waits {
        return Ok(());
    }
    for scope in scopes {
        trial::warn_of_objects(review, &api, &scope);
    }
    if find(ids::apiresourceschemas()).is_some() {
        release::warn_of_effects(review, schema, &api, accepted);
    }
    Ok(())
}

/// Rules that hold.
struct Proved {
    api: Arc<Api>,
    /// True if they wait for the definition: this is the API with the one that they wait for.
    waits: bool,
}

/// Proves the rules of a definition. Rules wait for it, which a warning says, while it has versions
/// that the rules in force name and these no longer do; `None` while it lacks versions that they
/// name.
fn prove_beside(
    review: &Review<'_>,
    definition: &Json,
    joined: &Json,
    parsed: Option<&RuleSet>,
) -> std::result::Result<Option<Proved>, Vec<FieldError>> {
    let prove = |definition: &Json| {
        let bundle = bundle::of_definition(definition, joined);
        review.catalog.prove(&bundle, &review.served.meter)
    };
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let warn = |until: &str, versions: &[String]| {
        review.warn(format!(
            "these rules wait until CustomResourceDefinition {name:?} {until} {}",
            versions.join(", ")
        ));
    };
    let serves = |api| Some(Proved { api, waits: false });
    let Some(apart) = parsed.map(|rules| parts::apart(rules, definition)) else {
        return prove(definition).map(serves);
    };
    if !apart.missing.is_empty() {
        warn("has", &apart.missing);
        return Ok(None);
    }
    let errors = match prove(definition) {
        Ok(api) => return Ok(serves(api)),
        Err(errors) => errors,
    };
    let given_up = parts::given_up(review.snapshot, definition, apart);
    if given_up.is_empty() {
        return Err(errors);
    }
    let api = prove(&parts::without_versions(definition, &given_up)).map_err(|_| errors)?;
    warn("no longer has", &given_up);
    Ok(Some(Proved { api, waits: true }))
}

/// Returns the API of a schema or definition with the rules that are stored now, if they fit.
fn present(review: &Review<'_>, schema: &str) -> Option<Arc<Api>> {
    let find = |resource| {
        let key = ObjectKey::cluster_scoped(resource, review.cluster.clone(), schema);
        review.snapshot.get(&key).map(|entry| entry.object.body_value())
    };
    if let Some(found) = find(ids::apiresourceschemas()) {
        let rules = parts::joined(review.snapshot, review.cluster, schema);
        return review.catalog.compile(&bundle::of_schema(&found, rules.as_ref())).ok();
    }
    let definition = find(ids::customresourcedefinitions())?;
    let text = |pointer: &str| definition.pointer(pointer).and_then(Json::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let served = review.catalog.resolve(review.snapshot, review.cluster, group, plural);
    served.map(|served| served.api.clone())
}

/// Returns the objects that the rules of a schema or definition convert: those of each export that
/// offers the schema, and those of the definition.
fn scopes(review: &Review<'_>, name: &str, api: &Api) -> Vec<Scope> {
    let resource = |identity: &str| ResourceId {
        group: api.group.as_ref().into(),
        resource: api.names.plural.as_ref().into(),
        identity: identity.into(),
    };
    let own = Scope::cluster(resource(""), review.cluster.clone());
    let identity = |export: &Json| export["status"]["identityHash"].as_str().map(resource);
    let exports = offering(review.snapshot, review.cluster, &BTreeSet::from([name.to_owned()]));
    let offered = exports
        .iter()
        .filter_map(|export| identity(&export.object.body_value()));
    [own].into_iter().chain(offered.map(Scope::everywhere)).collect()
}

/// Returns the exports of the workspace that offer a schema.
fn exports_of(review: &Review<'_>, name: &str) -> Vec<Entry> {
    offering(review.snapshot, review.cluster, &BTreeSet::from([name.to_owned()]))
}

/// Returns the rules of a schema with one of its objects replaced, added or, for `None`, removed.
fn joined(
    review: &Review<'_>,
    name: &str,
    schema: &str,
    new: Option<&Json>,
) -> std::result::Result<Option<Json>, Vec<FieldError>> {
    let stored = parts::for_schema(review.snapshot, review.cluster, schema);
    let others = stored.iter().filter(|part| *part.key.name != *name);
    let mut all: Vec<Json> = others.map(|part| part.object.body_value()).collect();
    all.extend(new.cloned());
    all.sort_unstable_by(|a, b| a["metadata"]["name"].as_str().cmp(&b["metadata"]["name"].as_str()));
    if all.len() > parts::PARTS_MAX {
        let why = format!(
            "the rules of {schema:?} are in {} APIConversions already: at most {} belong to one schema",
            all.len() - 1,
            parts::PARTS_MAX
        );
        return Err(vec![FieldError::forbidden(
            &FieldPath::new("metadata").child("labels"),
            why,
        )]);
    }
    Ok(parts::join(all))
}

/// Warns of the first rules that convert no object, of the first lists that are not one list, and
/// of values that one version accepts and another one shows although its schema refuses them: one
/// warning with an object for each of the first kinds, and the number of the others.
pub(super) fn warn_of_rules(review: &Review<'_>, api: &Arc<Api>) {
    for idle in api.bundle.idle_rules().into_iter().take(FINDINGS_SHOWN) {
        review.warn(idle);
    }
    for apart in api.bundle.lists_apart().iter().take(FINDINGS_SHOWN) {
        review.warn(apart.clone());
    }
    if let Ok(searched) = &*review.catalog.proof(api, &review.served.meter) {
        for misfit in searched.misfits.iter().take(FINDINGS_SHOWN) {
            review.warn(misfit.to_string());
        }
        if let Some(more @ 1..) = searched.misfits.len().checked_sub(FINDINGS_SHOWN) {
            review.warn(format!(
                "{more} more kinds of values that one version accepts and another refuses: insula conversion test \
                 lists them"
            ));
        }
    }
}

/// Refuses to delete rules that convert stored objects or that belong to a schema of an export.
/// Without them consumers would find their fields in no version but the stored one.
fn review_deletion(review: &Review<'_>, old: &Json) -> Result<()> {
    let name = parts::schema_of(old);
    let usage = usage(review, name);
    if !usage.is_empty() {
        let why = format!(
            "{} are read by these rules: nothing would take their place",
            usage.message(&review.names())
        );
        return Err(review.forbid(old, why));
    }
    let Some(export) = exports_of(review, name).into_iter().next() else {
        return Ok(());
    };
    let why = format!(
        "APIExport {:?} offers the schema {name:?}, and its versions convert by these rules: take the schema out of \
         the export's spec.resources first",
        export.key.name
    );
    Err(review.forbid(old, why))
}

/// Counts the objects that are served by a bundle with these rules.
fn usage(review: &Review<'_>, name: &str) -> Usage {
    let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), review.cluster.clone(), name);
    match review.snapshot.get(&key) {
        Some(schema) => usage::of_schema(review.snapshot, &schema.object.meta.uid.to_string()),
        None => Usage::of_definition(
            (review.snapshot, review.cluster),
            name,
            |route| route.bundle.as_deref().is_some_and(|bundle| has_rules(review, bundle)),
            |_| true,
        ),
    }
}

/// Returns true unless a bundle serves without rules, as one does whose rules wait.
fn has_rules(review: &Review<'_>, bundle: &str) -> bool {
    let bundle = review.snapshot.get(&ids::bundle(bundle));
    bundle.is_some_and(|bundle| bundle::has_rules(&bundle.object.body_value()))
}
