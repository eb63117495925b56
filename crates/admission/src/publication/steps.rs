//! The objects that a publication writes, and what changes with each.

use super::{Find, Published, has_same_contents, offered, text};
use insula_api::Json;
use insula_schema::Structural;
use serde::Serialize;

/// Action on one object.
#[derive(Debug, Serialize)]
pub struct Step {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// `create`, `update` or `unchanged` for an object to write; `created` and so on for one that
    /// is written.
    pub action: &'static str,
    /// Changes, a text each.
    pub detail: Vec<String>,
}

/// Returns the steps of a publication: schemas and rules first, then the export.
///
/// # Errors
/// A stored object cannot be read.
pub fn steps<E>(
    find: Find<'_, E>,
    published: &[Published],
    existing: Option<&Json>,
    export: &Json,
) -> Result<Vec<Step>, E> {
    let mut steps = Vec::new();
    for api in published {
        let offered = existing.and_then(|export| offered(export, api));
        for object in &api.objects() {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            let there = find(kind, name)?;
            let (action, detail) = match &there {
                Some(there) if has_same_contents(there, object) => ("unchanged", Vec::new()),
                Some(_) => ("update", Vec::new()),
                None if kind == "APIResourceSchema" => ("create", changes(find, offered.as_deref(), object)?),
                None => ("create", Vec::new()),
            };
            steps.push(Step {
                kind: kind.to_owned(),
                name: name.to_owned(),
                action,
                detail,
            });
        }
    }
    let (action, detail) = match existing {
        None => ("create", Vec::new()),
        Some(there) if there["spec"] == export["spec"] => ("unchanged", Vec::new()),
        Some(there) => {
            let moved = published.iter().filter_map(|api| {
                let before = offered(there, api);
                (before.as_deref() != Some(api.name()))
                    .then(|| format!("{} → {}", before.as_deref().unwrap_or("nothing"), api.name()))
            });
            let withdrawn = resources(there).filter(|it| !resources(export).any(|other| is_same(it, other)));
            let withdrawn = withdrawn.map(|it| format!("{} → nothing", text(it, "/schema")));
            ("update", moved.chain(withdrawn).collect())
        }
    };
    steps.push(Step {
        kind: "APIExport".to_owned(),
        name: text(export, "/metadata/name").to_owned(),
        action,
        detail,
    });
    Ok(steps)
}

fn resources(export: &Json) -> impl Iterator<Item = &Json> {
    export["spec"]["resources"].as_array().into_iter().flatten()
}

fn is_same(one: &Json, other: &Json) -> bool {
    one["group"] == other["group"] && one["name"] == other["name"]
}

/// Returns the changes from the offered schema to the new one, field by field.
fn changes<E>(find: Find<'_, E>, offered: Option<&str>, new: &Json) -> Result<Vec<String>, E> {
    let Some(offered) = offered else { return Ok(Vec::new()) };
    let old = find("APIResourceSchema", offered)?;
    let Some(old) = old else {
        return Ok(vec![format!("{offered}, which is offered now, is not there")]);
    };
    let mut out = Vec::new();
    let versions = |schema: &Json| schema["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let (before, after) = (versions(&old), versions(new));
    for version in &before {
        let name = text(version, "/name");
        let Some(other) = after.iter().find(|other| other["name"] == version["name"]) else {
            out.push(format!("{name} removed (breaking)"));
            continue;
        };
        let parse = |version: &Json| Structural::parse_trusted(&version["schema"]).ok();
        let (Some(a), Some(b)) = (parse(version), parse(other)) else {
            continue;
        };
        for change in insula_schema::diff(a.root(), b.root()) {
            let breaking = if change.breaking { " (breaking)" } else { "" };
            out.push(format!(
                "{name} {} {}: {}{breaking}",
                change.path, change.kind, change.detail
            ));
        }
    }
    let known = |version: &&Json| !before.iter().any(|other| other["name"] == version["name"]);
    out.extend(
        after
            .iter()
            .filter(known)
            .map(|version| format!("{} added", text(version, "/name"))),
    );
    Ok(out)
}
