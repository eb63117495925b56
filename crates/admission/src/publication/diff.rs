//! Changes between two sets of APIs, and which of them break clients.

use insula_catalog::{Api, ApiVersion, ScopeKind};
use serde::Serialize;

/// Mark before the name of a printer column, as the path of a difference.
const COLUMN: &str = "column ";

/// The part of an API that a difference is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The whole API, a name of it, or its scope.
    Api,
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
        if old.names.kind != new.names.kind {
            self.note(
                "",
                "kind",
                "changed",
                true,
                format!("{} → {}", old.names.kind, new.names.kind),
            );
        }
        if old.names.list_kind != new.names.list_kind && old.names.kind == new.names.kind {
            let detail = format!("{} → {}", old.names.list_kind, new.names.list_kind);
            self.note("", "listKind", "changed", true, detail);
        }
        let scope = |api: &Api| match api.scope {
            ScopeKind::Cluster => "Cluster",
            ScopeKind::Namespaced => "Namespaced",
        };
        if scope(old) != scope(new) {
            self.note("", "scope", "changed", true, format!("{} → {}", scope(old), scope(new)));
        }
        let (before, after) = (old.bundle.storage(), new.bundle.storage());
        if before != after {
            self.note("", "storage version", "changed", false, format!("{before} → {after}"));
        }
        for gone in old
            .names
            .short_names
            .iter()
            .filter(|name| !new.names.short_names.contains(name))
        {
            self.note("", "short name", "removed", false, gone.as_str());
        }
        let mut versions = self.part(About::Version);
        for before in &old.versions {
            match new.versions.iter().find(|after| after.name == before.name) {
                Some(after) => versions.version(before, after),
                None => versions.note(&before.name, "", "removed", before.served, "the whole version"),
            }
        }
        for after in new
            .versions
            .iter()
            .filter(|after| !old.versions.iter().any(|before| before.name == after.name))
        {
            versions.note(&after.name, "", "added", false, "the whole version");
        }
    }

    fn version(&mut self, old: &ApiVersion, new: &ApiVersion) {
        let version = &*old.name;
        match (old.served, new.served) {
            (true, false) => self.note(version, "", "removed", true, "is not served any more"),
            (false, true) => self.note(version, "", "added", false, "is served"),
            _ => {}
        }
        if old.deprecated.is_none() && new.deprecated.is_some() {
            self.note(
                version,
                "",
                "deprecated",
                false,
                new.deprecated.clone().unwrap_or_default(),
            );
        }
        self.part(About::Subresource).subresources(old, new);
        self.part(About::Column).columns(old, new);
        self.part(About::Selectable).selectable(old, new);
        for change in insula_schema::diff(old.schema.root(), new.schema.root()) {
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
            for (name, before, after) in [
                ("specReplicasPath", &before.spec_replicas, &after.spec_replicas),
                ("statusReplicasPath", &before.status_replicas, &after.status_replicas),
                ("labelSelectorPath", &before.selector, &after.selector),
            ] {
                if before != after {
                    let breaking = !before.is_empty();
                    self.note(version, name, "changed", breaking, format!("{before:?} → {after:?}"));
                }
            }
        }
    }

    fn columns(&mut self, old: &ApiVersion, new: &ApiVersion) {
        for gone in &old.columns {
            // Several columns can have one name.
            let mut named = new.columns.iter().filter(|column| column.name == gone.name);
            let same = named.clone().find(|column| column.path == gone.path);
            let (change, detail) = match (same, named.next()) {
                (Some(now), _) if gone.kind != now.kind => ("changed", format!("{} → {}", gone.kind, now.kind)),
                (Some(now), _) if gone.priority == 0 && now.priority > 0 => {
                    ("changed", "shown by -o wide alone".to_owned())
                }
                (Some(_), _) => continue,
                (None, Some(now)) => ("changed", format!("{} → {}", gone.json_path, now.json_path)),
                (None, None) => ("removed", String::new()),
            };
            self.note(&old.name, &format!("{COLUMN}{}", gone.name), change, false, detail);
        }
    }

    fn selectable(&mut self, old: &ApiVersion, new: &ApiVersion) {
        for gone in old.selectable.iter().filter(|field| !new.selectable.contains(field)) {
            self.note(&old.name, gone, "removed", true, "is not selectable any more");
        }
    }
}
