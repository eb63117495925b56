//! Versions that a publication removes: the tool asks before it removes them, and tells the server
//! that it was said twice.

use anyhow::bail;
use insula_api::names::annotations::CONFIRM_REMOVAL;
use serde_json::{Value, json};

use super::{
    plan::{Published, offered},
    target::Target,
};
use crate::{ask, files::text};

/// A version that the offered schema serves, and the new one does not.
#[derive(Debug, Default)]
pub(super) struct Removal {
    group: String,
    plural: String,
    version: String,
    /// Schema that serves it now.
    schema: String,
    deprecated: bool,
    /// Workspaces that used it lately, by the status of the export.
    tenants: u64,
    last_used: String,
}

/// The caller's consent to removals.
pub(super) struct Consent<'a> {
    /// Versions that flags name, as `widgets.example.io/v1` or `widgets/v1`.
    pub(super) named: &'a [String],
    /// True if versions that nobody uses may go.
    pub(super) unused: bool,
}

/// Returns the versions that a publication removes from an export.
///
/// # Errors
/// The target cannot be read.
pub(super) fn find(target: &Target, existing: Option<&Value>, published: &[Published]) -> anyhow::Result<Vec<Removal>> {
    let Some(export) = existing else { return Ok(Vec::new()) };
    let mut removals = Vec::new();
    for api in published {
        let Some(schema) = offered(export, api).filter(|schema| schema != api.name()) else {
            continue;
        };
        let Some(old) = target.get("apis.kcp.io/v1alpha1", "APIResourceSchema", &schema)? else {
            continue;
        };
        let kept: Vec<&str> = served(&api.schema).map(|version| text(version, "/name")).collect();
        for version in served(&old).filter(|version| !kept.contains(&text(version, "/name"))) {
            removals.push(Removal {
                deprecated: version["deprecated"] == true,
                ..Removal::from_usage(export, api, &schema, text(version, "/name"))
            });
        }
    }
    Ok(removals)
}

fn served(schema: &Value) -> impl Iterator<Item = &Value> {
    let versions = schema["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter(|version| version["served"] == true)
}

impl Removal {
    fn from_usage(export: &Value, api: &Published, schema: &str, version: &str) -> Self {
        let mut usage = export["status"]["usage"].as_array().into_iter().flatten();
        let usage = usage.find(|usage| {
            text(usage, "/group") == api.group
                && text(usage, "/resource") == api.plural
                && text(usage, "/version") == version
        });
        Removal {
            group: api.group.clone(),
            plural: api.plural.clone(),
            version: version.to_owned(),
            schema: schema.to_owned(),
            deprecated: false,
            tenants: usage.and_then(|usage| usage["tenants"].as_u64()).unwrap_or_default(),
            last_used: usage.map_or("", |usage| text(usage, "/lastUsed")).to_owned(),
        }
    }

    /// Returns the name in flags and messages: `widgets.example.io/v1`.
    fn name(&self) -> String {
        let group = if self.group.is_empty() { "core" } else { &self.group };
        format!("{}.{group}/{}", self.plural, self.version)
    }

    fn is_named(&self, name: &str) -> bool {
        name == self.name() || name == format!("{}/{}", self.plural, self.version)
    }

    /// Describes the use: `2 workspaces used it, last at 2026-11-21T09:40:00Z`.
    fn usage(&self) -> String {
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

/// Asks for consent to removals that no flag names: at a terminal by a question, else by an error
/// that names the flag. Sets the annotation of the export that confirms them. Returns false if one
/// is not confirmed.
///
/// # Errors
/// A flag names a version that is not removed, or the terminal cannot be read.
pub(super) fn confirm(removals: &[Removal], consent: &Consent<'_>, export: &mut Value) -> anyhow::Result<bool> {
    let is_removed = |name: &&String| !removals.iter().any(|removal| removal.is_named(name));
    if let Some(name) = consent.named.iter().find(is_removed) {
        bail!("--remove {name}: this publication removes no such version");
    }
    let mut confirmed = Vec::new();
    let mut refused = false;
    for removal in removals {
        let (name, usage) = (removal.name(), removal.usage());
        if !removal.deprecated {
            eprintln!(
                "warning: {name} was never deprecated: its users got no warning; publish it with deprecated: true first"
            );
        }
        if consent.named.iter().any(|flag| removal.is_named(flag)) {
            confirmed.push(format!("{}/{}", removal.schema, removal.version));
        } else if consent.unused && removal.tenants == 0 {
            // The server refuses it if that has changed.
        } else if ask::is_interactive() {
            match ask::confirm(&format!("Remove {name} ({usage})?"))? {
                true => confirmed.push(format!("{}/{}", removal.schema, removal.version)),
                false => refused = true,
            }
        } else {
            let or_yes = if removal.tenants == 0 { " or --yes" } else { "" };
            eprintln!("error: this would remove {name} ({usage}): confirm it by --remove {name}{or_yes}");
            refused = true;
        }
    }
    if !confirmed.is_empty() {
        export["metadata"]["annotations"][CONFIRM_REMOVAL] = json!(confirmed.join(","));
    }
    Ok(!refused)
}
