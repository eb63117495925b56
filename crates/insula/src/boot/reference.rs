//! `insula boot build docs`: a reference of a project's kinds and their fields, from the
//! definitions that its program serves.

use std::{fmt::Write, process::Command, process::ExitCode};

use anyhow::{Context, ensure};
use clap::Args;
use serde_json::Value;

use super::{build, here, make, plan::Plan};
use crate::files::text;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder of the reference, below the project.
    #[arg(long, value_name = "FOLDER", default_value = "docs")]
    output: String,
    /// Replace files that were changed.
    #[arg(long)]
    overwrite: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (root, project) = here()?;
    let program = build::program(&root, &project.name, false, None)?;
    let output = Command::new(&program).arg("definitions").output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{} definitions failed: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let definitions: Vec<Value> = serde_json::from_slice(&output.stdout).context("definitions are no JSON")?;
    let mut plan = Plan::default();
    for definition in &definitions {
        let file = format!("{}/{}.md", arguments.output, text(definition, "/metadata/name"));
        plan.build(file, page(definition), arguments.overwrite);
    }
    make(plan, &root)
}

/// Returns the page of a kind: a section for each version, with a row for each field.
fn page(definition: &Value) -> String {
    let spec = &definition["spec"];
    let (kind, group) = (text(spec, "/names/kind"), text(spec, "/group"));
    let mut page = format!("# {kind}\n\n");
    let names = [
        ("plural", text(spec, "/names/plural")),
        ("group", group),
        ("scope", text(spec, "/scope")),
    ];
    for (name, value) in names {
        let _ = writeln!(page, "- {name}: `{value}`");
    }
    for version in spec["versions"].as_array().into_iter().flatten() {
        let _ = write!(page, "\n## {group}/{}\n\n", text(version, "/name"));
        page += "| field | type | description |\n|---|---|---|\n";
        let schema = &version["schema"]["openAPIV3Schema"];
        fields(&mut page, "", schema);
    }
    page
}

/// Adds a row for each field of an object, and those below it.
fn fields(page: &mut String, above: &str, schema: &Value) {
    let required = |name: &str| {
        let mut names = schema["required"].as_array().into_iter().flatten();
        names.any(|required| required == name)
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        // Every object has these.
        if above.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let path = format!("{above}.{name}");
        let (kind, inner) = match field["type"].as_str() {
            Some("array") => ("list of ", &field["items"]),
            _ if field["additionalProperties"].is_object() => ("map of ", &field["additionalProperties"]),
            _ => ("", field),
        };
        let of = inner["type"].as_str().unwrap_or("any");
        let wanted = if required(name) { ", required" } else { "" };
        let about = text(field, "/description").replace('\n', " ").replace('|', "\\|");
        let _ = writeln!(page, "| `{path}` | {kind}{of}{wanted} | {about} |");
        let below = if kind.is_empty() { path } else { format!("{path}[]") };
        fields(page, &below, inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn a_page_has_a_row_for_each_field() {
        let spec = json!({"type": "object", "required": ["size"], "description": "The desired state.", "properties": {
            "size": {"type": "integer", "description": "Metres."},
            "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        }});
        let schema = json!({"type": "object", "properties": {"metadata": {"type": "object"}, "spec": spec}});
        let definition = json!({"metadata": {"name": "foos.fleet.example.com"}, "spec": {
            "group": "fleet.example.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}],
        }});
        expect![[r#"
            # Foo

            - plural: `foos`
            - group: `fleet.example.com`
            - scope: `Namespaced`

            ## fleet.example.com/v1

            | field | type | description |
            |---|---|---|
            | `.spec` | object | The desired state. |
            | `.spec.parts` | list of object |  |
            | `.spec.parts[].name` | string |  |
            | `.spec.size` | integer, required | Metres. |
        "#]]
        .assert_eq(&page(&definition));
    }
}
