//! Admission of APIExports: schema names match their resources, and permission claims on APIs that
//! are not built in carry an identity hash.

use crate::{
    kinds::{
        catalogue, hidden, removal,
        review::{Review, Rules, annotate_path},
        trial,
        usage::Usage,
    },
    publication::Acceptance,
};
use insula_api::{
    FieldError, FieldPath, Json, LabelSelector, Object, ObjectKey, ResourceId, Scope, aggregate, names::annotations,
};
use insula_catalog::{Result, bundle, ids, indexes, parts};

pub(super) const RULES: Rules = Rules {
    write: |review, new, old| {
        self::review(review, new)?;
        catalogue::review(review, new, old)?;
        review_steps(review, new, old)?;
        review_change(review, new, old)?;
        warn_of_breaks(review, new, old);
        let accepted = hidden::accepted(new, |why| review.warn(why));
        hidden::forget_once(new);
        warn_of_objects(review, new, old, &accepted);
        annotate_path(review, new);
        Ok(())
    },
    ..Rules::new("apis.kcp.io", &["apiexports"])
};

/// Returns true for the resources that every workspace has, those of Kubernetes and of kcp. As in
/// kcp, all of `apis.kcp.io` counts.
fn is_built_in(review: &Review<'_>, group: &str, resource: &str) -> bool {
    let known = || review.catalog.system().get(group, resource)?.api.builtin;
    group == "apis.kcp.io" || known().is_some_and(|builtin| builtin.claimable)
}

fn review(review: &Review<'_>, new: &Json) -> Result<()> {
    let spec = FieldPath::new("spec");
    let text = |value: &Json, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let mut errors = Vec::new();
    for (i, resource) in new["spec"]["resources"].as_array().into_iter().flatten().enumerate() {
        let (group, name, schema) = (
            text(resource, "group"),
            text(resource, "name"),
            text(resource, "schema"),
        );
        let group = if group.is_empty() { "core" } else { &group };
        let suffix = format!(".{name}.{group}");
        if !schema.ends_with(&suffix) {
            let at = spec.child("resources").index(i).child("schema");
            errors.push(FieldError::invalid(
                &at,
                &Json::from(schema),
                format!("must end in {suffix}"),
            ));
        }
    }
    for (i, claim) in new["spec"]["permissionClaims"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        if text(claim, "identityHash").is_empty()
            && !is_built_in(review, &text(claim, "group"), &text(claim, "resource"))
        {
            let at = spec.child("permissionClaims").index(i).child("identityHash");
            let why = "identityHash is required for API types that are not built-in";
            errors.push(FieldError::invalid(&at, &Json::from(""), why));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(review.forbid(new, aggregate(&errors)))
    }
}

/// Refuses steps of a rollout with a selector that is none: it would select no binding. Steps that
/// are there stay.
fn review_steps(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let steps = &new["spec"]["rollout"]["steps"];
    if old.is_some_and(|old| old["spec"]["rollout"]["steps"] == *steps) {
        return Ok(());
    }
    let at = FieldPath::new("spec").child("rollout").child("steps");
    let selectors = steps.as_array().into_iter().flatten().map(|step| step.get("selector"));
    let errors: Vec<FieldError> = selectors
        .enumerate()
        .filter_map(|(i, selector)| {
            let error = LabelSelector::from_json(selector?).err()?;
            let at = at.index(i).child("selector");
            Some(FieldError::invalid(&at, selector?, error.to_string()))
        })
        .collect();
    if errors.is_empty() {
        Ok(())
    } else {
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        Err(review.served.api.invalid(name, errors))
    }
}

/// Refuses to replace the schema of a resource by one that lacks a version in which consumers have
/// stored objects, and to remove a version that they used lately.
fn review_change(review: &Review<'_>, new: &Json, old: Option<&Json>) -> Result<()> {
    let Some(old) = old.filter(|old| old["spec"]["resources"] != new["spec"]["resources"]) else {
        return Ok(());
    };
    let identity = old["status"]["identityHash"].as_str().unwrap_or_default();
    let resources = |export: &Json| export["spec"]["resources"].as_array().cloned().unwrap_or_default();
    let before = resources(old);
    let is_same = |a: &Json, b: &Json| ["group", "name"].iter().all(|field| a[*field] == b[*field]);
    let mut errors = removal::review(review, new, old);
    for (i, resource) in resources(new).iter().enumerate() {
        let changed = before
            .iter()
            .any(|known| is_same(known, resource) && known["schema"] != resource["schema"]);
        let Some(versions) = changed.then(|| versions_of(review, resource)).flatten() else {
            continue;
        };
        let text = |field: &str| resource[field].as_str().unwrap_or_default();
        let route = ids::resource_route(review.cluster, text("group"), text("name")).name;
        let lacks = |object: &Object| !versions.iter().any(|version| version == object.version());
        let usage = Usage::routed(
            review.snapshot,
            review.snapshot.indexed(&indexes::ROUTES_BY_NAME, &route),
            |said| !identity.is_empty() && *said.identity == *identity,
            lacks,
        );
        if !usage.is_empty() {
            let stored: Vec<&str> = usage.versions.iter().map(String::as_str).collect();
            let why = format!(
                "lacks {}, in which {} are stored: keep it in spec.versions, not served if it is to go, until they \
                 were written in another storage version",
                stored.join(", "),
                usage.message(&review.names())
            );
            let at = FieldPath::new("spec").child("resources").index(i).child("schema");
            errors.push(FieldError::invalid(&at, &resource["schema"], why));
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        Err(review.served.api.invalid(name, errors))
    }
}

/// Warns of newly offered schemas without rules between whose versions fields break.
fn warn_of_breaks(review: &Review<'_>, new: &Json, old: Option<&Json>) {
    let schemas = |export: &Json| -> Vec<String> {
        let resources = export["spec"]["resources"].as_array().into_iter().flatten();
        resources
            .filter_map(|resource| resource["schema"].as_str().map(str::to_owned))
            .collect()
    };
    let known = old.map(schemas).unwrap_or_default();
    for name in schemas(new).iter().filter(|name| !known.contains(name)) {
        let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), review.cluster.clone(), name);
        let Some(schema) = review.snapshot.get(&key) else {
            continue;
        };
        let schema = schema.object.body_value();
        if schema["metadata"]["annotations"][annotations::ACCEPT_INCOMPATIBLE] == "true" {
            continue;
        }
        let rules = parts::joined(review.snapshot, review.cluster, name);
        let compiled = review.catalog.compile(&bundle::of_schema(&schema, rules.as_ref()));
        let breaks = compiled.map(|api| api.bundle.breaks()).unwrap_or_default();
        if !breaks.is_empty() {
            review.warn(format!(
                "{name} has incompatible versions and no rules ({} fields, see the condition VersionsCompatible): \
                 {}",
                breaks.len(),
                trial::first_named(&breaks)
            ));
        }
    }
}

/// Warns of objects of consumers that a newly offered schema could not show.
fn warn_of_objects(review: &Review<'_>, new: &Json, old: Option<&Json>, accepted: &[Acceptance]) {
    let resources = |export: &Json| export["spec"]["resources"].as_array().cloned().unwrap_or_default();
    let Some((before, identity)) = old.and_then(|old| Some((resources(old), old["status"]["identityHash"].as_str()?)))
    else {
        return;
    };
    let after = resources(new);
    let is_gone = |resource: &&Json| {
        let mut after = after.iter();
        !after.any(|other| ["group", "name"].iter().all(|field| other[*field] == resource[*field]))
    };
    for resource in before.iter().filter(is_gone) {
        let text = |field: &str| resource[field].as_str().unwrap_or_default();
        let resource = ResourceId {
            group: text("group").into(),
            resource: text("name").into(),
            identity: identity.into(),
        };
        if let Some(api) = review.catalog.stored(review.snapshot, review.cluster, text("schema")) {
            trial::warn_of_removed(review, &api, &Scope::everywhere(resource), accepted);
        }
    }
    let schema = |name: &str| review.catalog.stored(review.snapshot, review.cluster, name);
    for resource in after.iter().filter(|resource| !before.contains(resource)) {
        let text = |field: &str| resource[field].as_str().unwrap_or_default();
        let is_same = |other: &&Json| ["group", "name"].iter().all(|field| other[*field] == resource[*field]);
        let offered = before.iter().find(is_same).and_then(|other| other["schema"].as_str());
        let offered = offered.and_then(schema);
        let Some(api) = schema(text("schema")) else {
            if offered.is_some() {
                review.warn(format!(
                    "what {} does to stored objects is not known, because it is not there or does not compile with \
                     its rules: write both first, or let `insula export publish --check` look at all files together",
                    text("schema")
                ));
            }
            continue;
        };
        let resource_id = ResourceId {
            group: text("group").into(),
            resource: text("name").into(),
            identity: identity.into(),
        };
        let scope = Scope::everywhere(resource_id);
        if let Some(offered) = offered {
            trial::warn_of_effects(review, (&offered, &api), &scope, accepted);
        }
        trial::warn_of_objects(review, &api, &scope);
    }
}

/// Returns the versions of the schema that a resource of an export names, or `None` if the schema
/// does not exist.
fn versions_of(review: &Review<'_>, resource: &Json) -> Option<Vec<String>> {
    let name = resource["schema"].as_str()?;
    let key = ObjectKey::cluster_scoped(ids::apiresourceschemas(), review.cluster.clone(), name);
    let schema = review.snapshot.get(&key)?.object.body_value();
    let versions = schema["spec"]["versions"].as_array()?.iter();
    Some(versions.filter_map(|v| v["name"].as_str().map(str::to_owned)).collect())
}
