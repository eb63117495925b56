//! Versions that a publication removes. Their removal is confirmed by an annotation of the export.

use super::{Find, Published, offered, text};
use insula_api::{Json, names::annotations::CONFIRM_REMOVAL};
use serde_json::json;

/// A version that the offered schema serves, and the new one does not.
#[derive(Debug, Default)]
pub struct Removal {
    group: String,
    plural: String,
    version: String,
    /// Schema that serves it now.
    schema: String,
    /// True if its users got warnings.
    pub deprecated: bool,
    /// Workspaces that used it lately, by the status of the export.
    pub tenants: u64,
    last_used: String,
}

/// Returns the versions that a publication removes from an export.
///
/// # Errors
/// A stored schema cannot be read.
pub fn removals<E>(find: Find<'_, E>, existing: Option<&Json>, published: &[Published]) -> Result<Vec<Removal>, E> {
    let Some(export) = existing else { return Ok(Vec::new()) };
    let mut removals = Vec::new();
    for api in published {
        let Some(schema) = offered(export, api).filter(|schema| schema != api.name()) else {
            continue;
        };
        let Some(old) = find("APIResourceSchema", &schema)? else {
            continue;
        };
        let kept: Vec<&str> = served(&api.schema).map(|version| text(version, "/name")).collect();
        for version in served(&old).filter(|version| !kept.contains(&text(version, "/name"))) {
            removals.push(Removal {
                deprecated: version["deprecated"] == true,
                ..Removal::from_usage(export, (&api.group, &api.plural), &schema, text(version, "/name"))
            });
        }
    }
    Ok(removals)
}

/// Returns the versions that go with resources, by group and plural, that an export no longer
/// offers.
///
/// # Errors
/// A stored schema cannot be read.
pub fn withdrawals<E>(find: Find<'_, E>, export: &Json, withdrawn: &[(String, String)]) -> Result<Vec<Removal>, E> {
    let mut removals = Vec::new();
    for resource in export["spec"]["resources"].as_array().into_iter().flatten() {
        let (group, plural, schema) = (
            text(resource, "/group"),
            text(resource, "/name"),
            text(resource, "/schema"),
        );
        let is_meant = |it: &(String, String)| it.0 == group && it.1 == plural;
        if !withdrawn.iter().any(is_meant) {
            continue;
        }
        let Some(old) = find("APIResourceSchema", schema)? else {
            continue;
        };
        removals.extend(served(&old).map(|version| Removal {
            deprecated: version["deprecated"] == true,
            ..Removal::from_usage(export, (group, plural), schema, text(version, "/name"))
        }));
    }
    Ok(removals)
}

fn served(schema: &Json) -> impl Iterator<Item = &Json> {
    let versions = schema["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter(|version| version["served"] == true)
}

/// Sets the annotation of the export that confirms removals.
pub fn confirm<'a>(removals: impl IntoIterator<Item = &'a Removal>, export: &mut Json) {
    let confirmed: Vec<String> = removals.into_iter().map(Removal::confirmation).collect();
    if !confirmed.is_empty() {
        export["metadata"]["annotations"][CONFIRM_REMOVAL] = json!(confirmed.join(","));
    }
}

impl Removal {
    fn from_usage(export: &Json, (group, plural): (&str, &str), schema: &str, version: &str) -> Self {
        let mut usage = export["status"]["usage"].as_array().into_iter().flatten();
        let usage = usage.find(|usage| {
            text(usage, "/group") == group && text(usage, "/resource") == plural && text(usage, "/version") == version
        });
        Removal {
            group: group.to_owned(),
            plural: plural.to_owned(),
            version: version.to_owned(),
            schema: schema.to_owned(),
            deprecated: false,
            tenants: usage.and_then(|usage| usage["tenants"].as_u64()).unwrap_or_default(),
            last_used: usage.map_or("", |usage| text(usage, "/lastUsed")).to_owned(),
        }
    }

    /// Returns the name in flags and messages: `widgets.example.io/v1`.
    pub fn name(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        format!("{}.{group}/{}", self.plural, self.version)
    }

    /// Returns true if a caller means it by `widgets.example.io/v1` or `widgets/v1`.
    pub fn is_named(&self, name: &str) -> bool {
        means_version(name, &self.name())
    }

    /// Returns the text that confirms it: `rev1.widgets.example.io/v1`.
    fn confirmation(&self) -> String {
        format!("{}/{}", self.schema, self.version)
    }

    /// Describes the use: `2 workspaces used it, last at 2026-11-21T09:40:00Z`.
    pub fn usage(&self) -> String {
        let last = match self.last_used.as_str() {
            "" => String::new(),
            last => format!(", last at {last}"),
        };
        match self.tenants {
            0 => format!("no workspace used it lately{last}"),
            1 => format!("1 workspace used it{last}"),
            n => format!("{n} workspaces used it{last}"),
        }
    }
}

/// Returns true if a caller means the version `widgets.example.io/v1` by this name, or by
/// `widgets/v1`.
pub fn means_version(name: &str, version: &str) -> bool {
    let (api, of_api) = version.split_once('/').unwrap_or((version, ""));
    let plural = api.split('.').next().unwrap_or_default();
    name == version || name.split_once('/') == Some((plural, of_api))
}
