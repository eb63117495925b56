//! Objects that clients write: two providers' releases of one API, bindings, widgets and maps.

use insula_api::Json;
use serde_json::json;

/// A kind of objects that clients write.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// API group.
    pub group: &'static str,
    /// Plural name.
    pub plural: &'static str,
    name: &'static str,
}

/// Kinds with two versions: one that providers publish, and one that tenants define.
pub const KINDS: [Kind; 2] = [
    Kind {
        group: "example.io",
        plural: "widgets",
        name: "Widget",
    },
    Kind {
        group: "acme.io",
        plural: "gadgets",
        name: "Gadget",
    },
];

/// Releases of the API, each with a schema of its own.
pub const RELEASES: usize = 4;

/// A workspace of the universal type.
pub fn workspace(name: &str) -> Json {
    json!({
        "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": {"name": name},
        "spec": {"type": {"name": "universal", "path": "root"}},
    })
}

fn object(fields: Json) -> Json {
    json!({"type": "object", "properties": fields})
}

fn version(name: &str, stored: bool, spec: Json) -> Json {
    json!({"name": name, "served": true, "storage": stored, "schema": object(json!({"spec": object(spec)}))})
}

/// The schema of a release. The first has one version, the others have two; the last is stored in
/// the second.
pub fn schema(release: usize) -> Json {
    let text = || json!({"type": "string"});
    let mut v1 = json!({"first": text(), "last": text(), "note": text()});
    let name = object(json!({"first": text(), "last": text()}));
    let mut v2 = json!({"name": name, "color": text(), "note": text()});
    if release > 1 {
        v1["weight"] = json!({"type": "integer"});
        v2["weight"] = json!({"type": "integer"});
    }
    let is_moved = release == RELEASES - 1;
    let mut versions = vec![version("v1", !is_moved, v1)];
    if release > 0 {
        versions.push(version("v2", is_moved, v2));
    }
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIResourceSchema",
        "metadata": {"name": format!("r{release}.widgets.example.io")},
        "spec": {
            "group": "example.io", "scope": "Namespaced", "versions": versions,
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        },
    })
}

/// The definition of gadgets, with one version or two.
pub fn definition(release: usize) -> Json {
    let Kind { group, plural, name } = KINDS[1];
    let mut versions = schema(release)["spec"]["versions"].take();
    for version in versions.as_array_mut().into_iter().flatten() {
        let schema = version["schema"].take();
        version["schema"] = json!({"openAPIV3Schema": schema});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "singular": "gadget", "kind": name, "listKind": "GadgetList"},
        },
    })
}

/// The rules of a release.
pub fn rules(release: usize) -> Json {
    rules_named(&format!("r{release}.widgets.example.io"))
}

/// The rules between the two versions of a kind.
pub fn rules_named(name: &str) -> Json {
    let pairs = [("first", "name.first"), ("last", "name.last")];
    let to = |from: &str, to: &str| json!({"field": format!(".spec.{from}"), "destination": format!(".spec.{to}")});
    let up: Vec<Json> = pairs.iter().map(|(v1, v2)| to(v1, v2)).collect();
    let down: Vec<Json> = pairs.iter().map(|(v1, v2)| to(v2, v1)).collect();
    json!({
        "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIConversion",
        "metadata": {"name": name},
        "spec": {"conversions": [
            {"from": "v1", "to": "v2", "rules": up},
            {"from": "v2", "to": "v1", "rules": down},
        ]},
    })
}

/// The resources of an export that offers a release.
pub fn offered(release: usize) -> Json {
    json!([{"name": "widgets", "group": "example.io", "schema": format!("r{release}.widgets.example.io")}])
}

/// An export that offers a release.
pub fn export(release: usize) -> Json {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIExport", "metadata": {"name": "widgets"},
        "spec": {"resources": offered(release)},
    })
}

/// Claims of an export: one, or none.
pub fn claims(wanted: bool) -> Json {
    let claim = json!({"group": "", "resource": "configmaps", "verbs": ["get", "list"]});
    Json::Array(wanted.then_some(claim).into_iter().collect())
}

/// The answer of a binding to the claim.
pub fn answers(accepted: bool) -> Json {
    let mut answers = claims(true);
    answers[0]["state"] = json!(if accepted { "Accepted" } else { "Rejected" });
    answers[0]["selector"] = json!({"matchAll": true});
    answers
}

/// A binding to a provider's export.
pub fn binding(provider: &str) -> Json {
    json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
        "spec": {"reference": {"export": {"path": format!("root:{provider}"), "name": "widgets"}}},
    })
}

/// Fields of an object that a write can change, in each version.
pub fn fields(version: &str) -> &'static [&'static str] {
    match version {
        "v1" => &["first", "note"],
        _ => &["first", "note", "color"],
    }
}

/// An object of a kind, of which a write sets one field to its mark.
pub fn written(kind: Kind, version: &str, name: &str, field: &str, mark: &str) -> Json {
    let spec = match (version, field) {
        ("v2", "first") => json!({"name": {"first": mark}}),
        (_, field) => json!({field: mark}),
    };
    json!({
        "apiVersion": format!("{}/{version}", kind.group), "kind": kind.name,
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

/// The namespace that comes and goes.
pub const NAMESPACE: &str = "n";

/// A namespace.
pub fn namespace() -> Json {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
}

/// A ConfigMap. `owner`: the name and the uid of the ConfigMap that it goes with.
pub fn map(namespace: &str, name: &str, owner: Option<(&str, &str)>, mark: &str) -> Json {
    let reference = |(name, uid)| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let owners: Vec<Json> = owner.map(reference).into_iter().collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners}, "data": {"mark": mark},
    })
}

/// ConfigMaps that the quota of a workspace allows.
pub const MAPS_MAX: usize = 3;

/// A quota.
pub fn quota() -> Json {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "default"},
        "spec": {"hard": {"count/configmaps": MAPS_MAX.to_string()}},
    })
}

/// Annotation for the mark of a write that has no other place for it.
const MARK: &str = "/metadata/annotations/mark";

/// Leaves the mark of a write in an object or a patch of one.
pub fn set_mark(body: &mut Json, mark: &str) {
    body["metadata"]["annotations"]["mark"] = Json::from(mark);
}

/// Returns a patch that leaves a mark in the place of other writes, or in one of its own.
pub fn mark_patch(mark: &str, second: bool) -> Json {
    let place = if second { "second" } else { "mark" };
    json!({"metadata": {"annotations": {place: mark}}})
}

/// Resources whose objects have marks.
pub const MARKED: [&str; 11] = [
    "widgets",
    "gadgets",
    "configmaps",
    "namespaces",
    "workspaces",
    "apibindings",
    "apiexports",
    "apiresourceschemas",
    "apiconversions",
    "resourcequotas",
    "customresourcedefinitions",
];

/// Place of a mark that the second version alone has.
pub const IN_ONE_VERSION: &str = "/spec/color";

/// Returns the marks in an object, with their places.
pub fn marks_of(value: &Json) -> impl Iterator<Item = (&'static str, &str)> {
    let places = [
        "/spec/first",
        "/spec/name/first",
        "/spec/note",
        IN_ONE_VERSION,
        "/data/mark",
        MARK,
        "/metadata/annotations/second",
    ];
    let mark = |place| Some((place, value.pointer(place)?.as_str()?));
    places.into_iter().filter_map(mark)
}
