//! Errors of schemas, and what is worth changing in them.

use super::{Manifest, without_rules};
use insula_catalog::Api;
use serde::Serialize;

/// Gravity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Worth changing.
    Warning,
    /// A server refuses it.
    Error,
}

/// Finding about a schema.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// Name of the schema.
    pub api: String,
    /// Versions with the finding; empty for the whole schema.
    pub versions: Vec<String>,
    /// Its gravity.
    pub severity: Severity,
    /// The kind of finding: `invalid`, `unbounded`, `cost`, `default-missing`, `list-keys`,
    /// `int-or-string` or `preserve-unknown`.
    pub finding: String,
    /// The field.
    pub path: String,
    /// Description.
    pub message: String,
}

/// Returns the findings about a schema.
pub fn lint(name: &str, manifest: Manifest<'_>) -> Vec<Finding> {
    // Rules have to write required fields, and are refused otherwise.
    let ruled = manifest.conversion.is_some() || manifest.rules().is_ok_and(|rules| rules.is_some());
    let mut schema = manifest.schema.clone();
    without_rules(&mut schema);
    let bare = Manifest {
        schema: &schema,
        conversion: None,
        meter: manifest.meter,
    };
    let compiled = bare.assemble();
    let mut errors = bare.schema_errors();
    match &compiled {
        Err(others) if errors.is_empty() => errors.extend(others.iter().cloned()),
        _ => {}
    }
    let invalid = errors.into_iter().map(|error| Finding {
        api: name.to_owned(),
        versions: Vec::new(),
        severity: Severity::Error,
        finding: "invalid".to_owned(),
        path: error.field.to_string(),
        message: error.body(),
    });
    let mut findings: Vec<Finding> = invalid.collect();
    // Other findings need a schema that compiles.
    if let Ok(api) = compiled {
        of_api(name, &api, ruled, &mut findings);
    }
    findings
}

fn of_api(name: &str, api: &Api, ruled: bool, findings: &mut Vec<Finding>) {
    let stored = &api.versions[api.storage];
    for version in &api.versions {
        let mut lints = insula_schema::lint(version.schema.root());
        // A field that another version cannot fill is missing whichever of the two is stored.
        for other in api.versions.iter().filter(|other| !ruled && other.name != version.name) {
            if other.name == stored.name || version.name == stored.name {
                lints.extend(insula_schema::lint_between(other.schema.root(), version.schema.root()));
            }
        }
        for lint in lints {
            let (path, kind) = (lint.path, lint.kind.to_string());
            let same = |finding: &&mut Finding| {
                finding.api == name
                    && finding.path == path
                    && finding.finding == kind
                    && finding.message == lint.message
            };
            if let Some(known) = findings.iter_mut().find(same) {
                if !known.versions.iter().any(|known| **known == *version.name) {
                    known.versions.push(version.name.to_string());
                }
                continue;
            }
            findings.push(Finding {
                api: name.to_owned(),
                versions: vec![version.name.to_string()],
                severity: if lint.kind.warns() {
                    Severity::Warning
                } else {
                    Severity::Note
                },
                finding: kind,
                path,
                message: lint.message,
            });
        }
    }
}
