//! Changes between two sets of APIs, and which of them break clients.

use insula_catalog::{Api, ApiVersion, Column, Names, Scale, ScopeKind};
use serde::Serialize;

/// Mark before the name of a printer column, as the path of a difference.
const COLUMN: &str = "column ";

/// The part of an API that a difference is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The whole API, its kinds, its scope, or the names that its objects may have.
    Api,
    /// A name by which commands reach the API.
    Name,
    /// A whole version.
    Version,
    /// A subresource of a version.
    Subresource,
    /// A printer column.
    Column,
    /// A field by which objects are selected.
    Selectable,
    /// A field.
    Field,
    /// A field and all that is below it.
    Fields,
}

/// A change of an API, of one of its versions or of a field.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// `<plural>.<group>`.
    pub api: String,
    /// The version; empty for changes of the whole API.
    pub version: String,
    /// The field; empty for changes of a whole version.
    pub path: String,
    /// The kind of change: `added`, `removed`, `changed`, or one of a field.
    pub change: String,
    /// True if a valid object may be refused, lose a value or change its meaning.
    pub breaking: bool,
    /// Description.
    pub detail: String,
    /// The part that it is about.
    #[serde(skip)]
    pub(super) about: About,
    /// True if it refuses changes of a value that is there, whatever that is.
    #[serde(skip)]
    pub(super) refuses_changes: bool,
}

/// Returns the changes between two sets of APIs, which are paired by plural and group.
pub fn differences(old: &[Api], new: &[Api]) -> Vec<Difference> {
    let mut out = Vec::new();
    for before in old {
        let mut found = Differences {
            api: &name(before),
            about: About::Api,
            out: &mut out,
        };
        match new.iter().find(|after| name(after) == name(before)) {
            Some(after) => found.apis(before, after),
            None => found.note("", "", "removed", true, "the whole API"),
        }
    }
    for after in new
        .iter()
        .filter(|after| !old.iter().any(|before| name(before) == name(after)))
    {
        let mut found = Differences {
            api: &name(after),
            about: About::Api,
            out: &mut out,
        };
        found.note("", "", "added", false, "the whole API");
    }
    out
}

fn name(api: &Api) -> String {
    let dot = if api.group.is_empty() { "" } else { "." };
    format!("{}{dot}{}", api.names.plural, api.group)
}

struct Differences<'a> {
    api: &'a str,
    /// The part that is compared.
    about: About,
    out: &'a mut Vec<Difference>,
}

impl Differences<'_> {
    fn note(&mut self, version: &str, path: &str, change: &str, breaking: bool, detail: impl Into<String>) {
        self.out.push(Difference {
            api: self.api.to_owned(),
            version: version.to_owned(),
            path: path.to_owned(),
            change: change.to_owned(),
            breaking,
            detail: detail.into(),
            about: self.about,
            refuses_changes: false,
        });
    }

    /// Compares a part of what is compared here.
    fn part(&mut self, about: About) -> Differences<'_> {
        Differences {
            api: self.api,
            about,
            out: self.out,
        }
    }

    fn apis(&mut self, old: &Api, new: &Api) {
        // Each field is named, so that a new one is not forgotten here.
        let Api {
            group: _,
            names,
            scope,
            versions,
            storage: _,
            // What it shows is compared object by object.
            bundle: _,
            webhook: _,
            // The program has the behaviour of built-in kinds, and no definition.
            builtin: _,
            strategy: _,
            path_segment_names,
            // What is computed of the rest.
            fingerprint: _,
            proof: _,
            spelling: _,
        } = old;
        self.names(names, &new.names);
        let named = |scope: ScopeKind| match scope {
            ScopeKind::Cluster => "Cluster",
            ScopeKind::Namespaced => "Namespaced",
        };
        if *scope != new.scope {
            let detail = format!("{} → {}", named(*scope), named(new.scope));
            self.note("", "scope", "changed", true, detail);
        }
        if *path_segment_names != new.path_segment_names {
            let detail = match new.path_segment_names {
                true => "any path segment names an object",
                false => "new objects are named by DNS subdomains alone",
            };
            self.note("", "nameValidation", "changed", *path_segment_names, detail);
        }
        let (before, after) = (old.bundle.storage(), new.bundle.storage());
        if before != after {
            self.note("", "storage version", "changed", false, format!("{before} → {after}"));
        }
        let mut found = self.part(About::Version);
        for before in versions {
            match new.versions.iter().find(|after| after.name == before.name) {
                Some(after) => found.version(before, after),
                None => found.note(&before.name, "", "removed", before.served, "the whole version"),
            }
        }
        let is_new = |after: &&ApiVersion| !versions.iter().any(|before| before.name == after.name);
        for after in new.versions.iter().filter(is_new) {
            found.note(&after.name, "", "added", false, "the whole version");
        }
    }

    fn names(&mut self, old: &Names, new: &Names) {
        let Names {
            // APIs are paired by it.
            plural: _,
            singular,
            kind,
            list_kind,
            short_names,
            categories,
        } = old;
        if *kind != new.kind {
            self.note("", "kind", "changed", true, format!("{kind} → {}", new.kind));
        } else if *list_kind != new.list_kind {
            let detail = format!("{list_kind} → {}", new.list_kind);
            self.note("", "listKind", "changed", true, detail);
        }
        let mut part = self.part(About::Name);
        // Another definition of the workspace may have it.
        if *singular != new.singular && !singular.is_empty() {
            part.note(
                "",
                "singular",
                "removed",
                false,
                format!("{singular} → {}", new.singular),
            );
        }
        for (what, old, new) in [
            ("short name", short_names, &new.short_names),
            ("category", categories, &new.categories),
        ] {
            for gone in old.iter().filter(|name| !new.contains(name)) {
                part.note("", &format!("{what} {gone}"), "removed", false, "");
            }
            for added in new.iter().filter(|name| !old.contains(name)) {
                part.note("", &format!("{what} {added}"), "added", false, "");
            }
        }
    }

    fn version(&mut self, old: &ApiVersion, new: &ApiVersion) {
        let ApiVersion {
            name: version,
            served,
            deprecated,
            schema,
            // The schema as it is written, with its descriptions.
            openapi: _,
            status: _,
            scale: _,
            columns,
            selectable,
        } = old;
        match (served, new.served) {
            (true, false) => self.note(version, "", "removed", true, "is not served any more"),
            (false, true) => self.note(version, "", "added", false, "is served"),
            _ => {}
        }
        match (deprecated, &new.deprecated) {
            (before, Some(warning)) if before.as_ref() != Some(warning) => {
                self.note(version, "", "deprecated", false, warning.as_str());
            }
            (Some(_), None) => self.note(version, "", "changed", false, "is not deprecated any more"),
            _ => {}
        }
        self.part(About::Subresource).subresources(old, new);
        self.part(About::Column).columns(version, columns, &new.columns);
        self.part(About::Selectable)
            .selectable(version, selectable, &new.selectable);
        for change in insula_schema::diff(schema.root(), new.schema.root()) {
            let about = if change.is_deep { About::Fields } else { About::Field };
            self.part(about).note(
                version,
                &change.path,
                &change.kind.to_string(),
                change.breaking,
                change.detail,
            );
            if let Some(noted) = self.out.last_mut() {
                noted.refuses_changes = change.refuses_changes;
            }
        }
    }

    fn subresources(&mut self, old: &ApiVersion, new: &ApiVersion) {
        let version = &*old.name;
        for (name, before, after) in [
            ("status", old.status, new.status),
            ("scale", old.scale.is_some(), new.scale.is_some()),
        ] {
            let detail = format!("the subresource {name}");
            match (before, after) {
                (true, false) => self.note(version, "", "removed", true, detail),
                // From now on status is ignored in writes of the object itself.
                (false, true) => self.note(version, "", "added", name == "status", detail),
                _ => {}
            }
        }
        if let (Some(before), Some(after)) = (&old.scale, &new.scale) {
            self.scale(version, before, after);
        }
    }

    fn scale(&mut self, version: &str, old: &Scale, new: &Scale) {
        let Scale {
            spec_replicas,
            status_replicas,
            selector,
            strict,
        } = old;
        for (name, before, after) in [
            ("specReplicasPath", spec_replicas, &new.spec_replicas),
            ("statusReplicasPath", status_replicas, &new.status_replicas),
            ("labelSelectorPath", selector, &new.selector),
        ] {
            if before != after {
                let breaking = !before.is_empty();
                self.note(version, name, "changed", breaking, format!("{before:?} → {after:?}"));
            }
        }
        if !strict && new.strict {
            self.note(
                version,
                "scale",
                "changed",
                true,
                "a Scale is checked by the rules of v1beta1",
            );
        }
    }

    fn columns(&mut self, version: &str, old: &[Column], new: &[Column]) {
        for gone in old {
            let Column {
                name,
                kind,
                // Words about the cells, which stay what they are.
                format: _,
                description: _,
                priority,
                // The path as it was parsed tells spellings of one path from others.
                path,
                json_path,
            } = gone;
            // Several columns can have one name.
            let mut named = new.iter().filter(|column| column.name == *name);
            let same = named.clone().find(|column| column.path == *path);
            let (change, detail) = match (same, named.next()) {
                (Some(now), _) if *kind != now.kind => ("changed", format!("{kind} → {}", now.kind)),
                (Some(now), _) if *priority == 0 && now.priority > 0 => {
                    ("changed", "shown by -o wide alone".to_owned())
                }
                (Some(_), _) => continue,
                (None, Some(now)) => ("changed", format!("{json_path} → {}", now.json_path)),
                (None, None) => ("removed", String::new()),
            };
            self.note(version, &format!("{COLUMN}{name}"), change, false, detail);
        }
    }

    fn selectable(&mut self, version: &str, old: &[String], new: &[String]) {
        for gone in old.iter().filter(|field| !new.contains(field)) {
            self.note(version, gone, "removed", true, "is not selectable any more");
        }
        for added in new.iter().filter(|field| !old.contains(field)) {
            self.note(version, added, "added", false, "is selectable");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publication::{Manifest, publish};
    use insula_meter::Meter;
    use serde_json::{Value as Json, json};

    /// Returns the changes from a definition to one with a patch, as `change path: detail`, with an
    /// exclamation mark for those that break clients.
    fn changes(patch: Json) -> Vec<String> {
        let before = json!({"apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
            "metadata": {"name": "first.pumps.example.io"}, "spec": {"group": "example.io", "scope": "Cluster",
                "names": {"plural": "pumps", "singular": "pump", "kind": "Pump", "listKind": "PumpList",
                    "shortNames": ["pp", "pu"], "categories": ["all"]},
                "nameValidation": "PathSegmentName",
                "versions": [{"name": "v1", "served": true, "storage": true, "deprecated": true,
                    "schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}]}});
        let mut after = before.clone();
        json_patch(&mut after["spec"], &patch);
        let compile = |schema: &Json| {
            let conversion = None;
            let meter = &Meter::unbounded();
            publish(Manifest {
                schema,
                conversion,
                meter,
            })
            .compile()
            .expect("it is right")
        };
        let found = differences(&[compile(&before)], &[compile(&after)]);
        let told = |change: &Difference| {
            let mark = if change.breaking { "!" } else { "" };
            format!("{mark}{} {}: {}", change.change, change.path, change.detail)
        };
        found.iter().map(told).collect()
    }

    fn json_patch(value: &mut Json, patch: &Json) {
        match patch {
            Json::Object(fields) => fields
                .iter()
                .for_each(|(name, patch)| json_patch(&mut value[name], patch)),
            _ => *value = patch.clone(),
        }
    }

    #[test]
    fn names_are_compared() {
        assert_eq!(changes(json!({})), [""; 0]);
        let names = |names: Json| changes(json!({"names": names}));
        assert_eq!(
            names(json!({"shortNames": ["pu", "pm"], "categories": [], "singular": "pumpe"})),
            [
                "removed singular: pump → pumpe",
                "removed short name pp: ",
                "added short name pm: ",
                "removed category all: "
            ]
        );
        assert_eq!(
            names(json!({"listKind": "Pumps"})),
            ["!changed listKind: PumpList → Pumps"]
        );
        assert_eq!(
            changes(json!({"scope": "Namespaced"})),
            ["!changed scope: Cluster → Namespaced"]
        );
        assert_eq!(
            changes(json!({"nameValidation": null})),
            ["!changed nameValidation: new objects are named by DNS subdomains alone"]
        );
    }

    #[test]
    fn an_end_of_deprecation_is_a_change() {
        let version = json!([{"name": "v1", "served": true, "storage": true,
            "schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}]);
        assert_eq!(
            changes(json!({"versions": version})),
            ["changed : is not deprecated any more"]
        );
    }
}
