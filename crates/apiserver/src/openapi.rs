//! OpenAPI documents of a cluster's APIs: version 3 for each group version, and version 2 in one
//! piece.
//!
//! Documents are made on request and cached by content: a hash over the fingerprints of a group
//! version's APIs names its document before it is made, so that the index costs no document and a
//! thousand tenants of one API share one. Version 2 is composed of a part for each group version,
//! so that a change of an API costs its own part and no other.

mod cache;
mod discovery;
mod extension;
mod gnostic;
mod members;
mod packed;
mod paths;
pub(crate) mod serve;
mod v2;

pub use cache::Cache;
pub(crate) use extension::{Extension, hash_of as extension_hash};

use crate::discovery::hex_upper;
use cache::Made;
use insula_api::Json;
use insula_catalog::{ApiVersion, Served};
use insula_meter::{Ended, Meter};
use members::{add_json, write_all};
use packed::{Piece, PieceWriter};
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Version of the documents' form: to be changed whenever documents of the same APIs change.
const FORM: &str = concat!("5 ", env!("CARGO_PKG_VERSION"));

/// Price of an API in a document: the meter looks at the clock before each.
const API_UNITS: u64 = 5_000;

const COMPONENTS: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// A format of OpenAPI v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum V2 {
    /// JSON.
    Json,
    /// Protobuf in gnostic's messages.
    Protobuf,
}

impl V2 {
    /// Returns the `Content-Type` of the answer.
    pub fn content_type(self) -> &'static str {
        match self {
            V2::Json => "application/json",
            V2::Protobuf => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        }
    }
}

/// A document that is named by its content, before it is made.
pub struct Wanted<'a> {
    /// Entity tag and `hash` parameter.
    pub hash: String,
    /// Format of a version 2 document; `None` for version 3.
    form: Option<V2>,
    parts: Vec<Part<'a>>,
    /// Parts of extension servers.
    extensions: Vec<Made>,
}

/// The part of a document for one group version.
struct Part<'a> {
    hash: String,
    /// Path of a document of discovery, which has no APIs.
    discovery: Option<String>,
    apis: Vec<ApiOf<'a>>,
}

impl Part<'_> {
    /// Makes the part, in the format of a version 2 document or in version 3.
    ///
    /// # Errors
    /// The request may compute no further.
    fn make(&self, form: Option<V2>, meter: &Meter) -> Result<Made, Ended> {
        let whole = |piece: Piece| [piece, Piece::compress(b"")].into();
        Ok(match (form, &self.discovery) {
            (Some(form), _) => v2::part(&self.apis, form, meter)?,
            (None, Some(path)) => whole(Piece::compress(discovery::document(path).to_string().as_bytes())),
            (None, None) => whole(v3_document(&self.apis, meter)?),
        })
    }
}

type ApiOf<'a> = (&'a Served, &'a ApiVersion);

/// Returns `/openapi/v3`: the paths of the documents. With `all_groups` each group has a document,
/// otherwise each group of built-in kinds.
pub fn index(served: &[Served], all_groups: bool) -> Json {
    let mut documents = group_versions(served);
    for path in discovery::paths(served, all_groups) {
        documents.entry(path).or_default();
    }
    let paths: Map<String, Json> = documents
        .iter()
        .map(|(path, apis)| {
            let url = location(path, &hash_of(path, apis));
            (path.clone(), json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// Returns `/openapi/v3/<path>`, with a path of the index such as `api/v1` or `apis/example.io/v1`.
pub fn v3<'a>(served: &'a [Served], path: &str, all_groups: bool) -> Option<Wanted<'a>> {
    let path = path.trim_matches('/');
    let apis = group_versions(served).remove(path);
    let is_discovery = || discovery::paths(served, all_groups).contains(path);
    if apis.is_none() && !is_discovery() {
        return None;
    }
    let discovery = apis.is_none().then(|| path.to_owned());
    let apis = apis.unwrap_or_default();
    let hash = hash_of(path, &apis);
    let part = Part {
        hash: hash.clone(),
        discovery,
        apis,
    };
    Some(Wanted {
        hash,
        form: None,
        parts: vec![part],
        extensions: Vec::new(),
    })
}

/// Returns `/openapi/v2`, with the parts of extension servers.
pub(crate) fn v2<'a>(served: &'a [Served], extensions: &[Arc<Extension>], form: V2) -> Wanted<'a> {
    let part = |(path, apis): (String, Vec<_>)| Part {
        hash: format!("{form:?} {}", hash_of(&path, &apis)),
        discovery: None,
        apis,
    };
    let parts: Vec<Part<'_>> = group_versions(served).into_iter().map(part).collect();
    let mut all = Sha512::new();
    parts.iter().for_each(|part| all.update(&part.hash));
    extensions.iter().for_each(|part| all.update(&part.hash));
    Wanted {
        extensions: extensions.iter().map(|part| part.made(form)).collect(),
        hash: hex_upper(&all.finalize()),
        form: Some(form),
        parts,
    }
}

/// Returns the group of a path below `/openapi/v3`.
pub fn group_of(path: &str) -> &str {
    let path = path.trim_matches('/');
    let rest = path.strip_prefix("apis/").or_else(|| path.strip_prefix("thirdparty/"));
    let rest = rest.unwrap_or_default();
    rest.split_once('/').map_or(rest, |(group, _)| group)
}

/// Returns the path of a document without a prefix: clients add their own.
pub fn location(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{}?hash={hash}", path.trim_matches('/'))
}

/// Groups APIs by the path of their document, each by resource name.
fn group_versions(served: &[Served]) -> BTreeMap<String, Vec<ApiOf<'_>>> {
    let mut found: BTreeMap<String, Vec<ApiOf<'_>>> = BTreeMap::new();
    for one in served {
        for version in one.served_versions() {
            let path = match one.group().is_empty() {
                true => format!("api/{}", version.name),
                false => crate::third_party::root(one.group(), &version.name),
            };
            found.entry(path).or_default().push((one, version));
        }
    }
    for apis in found.values_mut() {
        apis.sort_by(|a, b| a.0.names().plural.cmp(&b.0.names().plural));
    }
    found
}

/// Returns the hash of a group version's document, over the fingerprints of its APIs.
fn hash_of(path: &str, apis: &[ApiOf<'_>]) -> String {
    let mut hash = Sha512::new();
    hash.update(format!("{FORM} {path}"));
    for (served, version) in apis {
        let names = served.names();
        let (plural, kind, fingerprint) = (&names.plural, &names.kind, served.api.fingerprint);
        hash.update(format!(" {plural} {kind} {} {fingerprint:x}", version.name));
        // The fingerprint is that of the definition alone.
        for (subresource, types) in served.api.typed_subresources() {
            hash.update(format!(" {subresource:?} {types:?}"));
        }
    }
    hex_upper(&hash.finalize())
}

/// Returns a version 3 document. What is made of an API is dropped before the next one.
fn v3_document(apis: &[ApiOf<'_>], meter: &Meter) -> Result<Piece, Ended> {
    let built_in = apis.iter().all(|(served, _)| served.api.strategy.traits().built_in);
    let title = if built_in {
        "Kubernetes"
    } else {
        "Kubernetes CRD Swagger"
    };
    let info = json!({"title": title, "version": "v0.1.0"});
    let (mut writer, mut wanted) = (PieceWriter::default(), BTreeSet::new());
    write_all(
        &mut writer,
        format!("{{\"openapi\":\"3.0.0\",\"info\":{info},\"paths\":{{").as_bytes(),
    );
    let mut add = |writer: &mut PieceWriter, names: &mut BTreeSet<String>, name: String, value: &Json| {
        references(value, &mut wanted);
        let before = if names.is_empty() { "" } else { "," };
        if names.insert(name.clone()) {
            add_json(writer, before, &name, value);
        }
    };
    let mut names = BTreeSet::new();
    for (served, version) in apis {
        meter.spend(API_UNITS)?;
        let mut own = Map::new();
        paths::add(&mut own, served, version);
        own.into_iter()
            .for_each(|(path, item)| add(&mut writer, &mut names, path, &item));
    }
    write_all(&mut writer, b"},\"components\":{\"schemas\":{");
    let mut names = BTreeSet::new();
    for (served, version) in apis {
        meter.spend(API_UNITS)?;
        let schema = insula_schema::openapi_v3(&version.openapi);
        let own = components(served, version, schema).into_iter();
        own.chain(subresource_components(served, version, insula_schema::openapi_v3))
            .for_each(|(name, schema)| add(&mut writer, &mut names, name, &schema));
    }
    for (name, schema) in referenced(wanted, &names) {
        let before = if names.is_empty() { "" } else { "," };
        add_json(&mut writer, before, &name, &schema);
        names.insert(name);
    }
    write_all(&mut writer, b"}}}");
    Ok(writer.finish())
}

/// Returns the schemas of a kind and of its list.
fn components(served: &Served, version: &ApiVersion, mut schema: Json) -> [(String, Json); 2] {
    let (group, names) = (served.group(), served.names());
    let gvk = |kind: &str| json!([{"group": &**group, "version": &*version.name, "kind": kind}]);
    let object_name = component(group, &version.name, &names.kind);
    schema["x-kubernetes-group-version-kind"] = gvk(&names.kind);
    let metadata = json!({"description": "What the server says of the list.",
        "allOf": [reference(&format!("{META}ListMeta"))]});
    let mut list = json!({
        "description": format!("{} is a list of {}", names.list_kind, names.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The group and version that this object is written in."},
            "items": {"type": "array", "description": "The objects.", "items": reference(&object_name)},
            "kind": {"type": "string", "description": "The kind of object, in CamelCase."},
            "metadata": metadata,
        },
        "x-kubernetes-group-version-kind": gvk(&names.list_kind),
    });
    if !version.selectable.is_empty() {
        let fields: Json = version
            .selectable
            .iter()
            .map(|field| json!({"fieldPath": field}))
            .collect();
        schema["x-kubernetes-selectable-fields"] = fields.clone();
        list["x-kubernetes-selectable-fields"] = fields;
    }
    [
        (object_name, schema),
        (component(group, &version.name, &names.list_kind), list),
    ]
}

/// Returns the schemas of the subresources that a program answers. `publish` writes a schema in the
/// dialect of the document.
fn subresource_components(
    served: &Served,
    version: &ApiVersion,
    publish: fn(&Json) -> Json,
) -> impl Iterator<Item = (String, Json)> {
    let types = served.api.typed_subresources().collect::<Vec<_>>().into_iter();
    types.flat_map(move |(subresource, types)| {
        [&types.request, &types.response].map(|(kind, schema)| {
            // Only an object is published as one; its metadata is that of the type.
            let mut schema = publish(&json!({"properties": {"body": schema}}))["properties"]["body"].take();
            if let Some((group, version, kind)) = subresource.body {
                schema["x-kubernetes-group-version-kind"] = json!([{"group": group, "version": version, "kind": kind}]);
            }
            (component(served.group(), &version.name, kind), schema)
        })
    })
}

/// Returns a component's name such as `io.example.v1.Widget`: the group's labels from the right,
/// version, kind.
fn component(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        _ => {
            let reversed: Vec<&str> = group.rsplit('.').collect();
            format!("{}.{}.{kind}", reversed.join("."), version.replace('/', "."))
        }
    }
}

fn reference(component: &str) -> Json {
    json!({"$ref": format!("{COMPONENTS}{component}")})
}

/// Returns the common schemas among the wanted ones, and those that these refer to, except for
/// those that are there.
fn referenced(mut wanted: BTreeSet<String>, there: &BTreeSet<String>) -> Map<String, Json> {
    let (common, mut found) = (common(), Map::new());
    while let Some(name) = wanted.pop_first() {
        if let (false, false, Some(schema)) = (there.contains(&name), found.contains_key(&name), common.get(&name)) {
            references(schema, &mut wanted);
            found.insert(name, schema.clone());
        }
    }
    found
}

fn references(value: &Json, found: &mut BTreeSet<String>) {
    references_below(COMPONENTS, value, found);
}

/// Collects the names of references with a prefix.
fn references_below(prefix: &str, value: &Json, found: &mut BTreeSet<String>) {
    match value {
        Json::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
            Some(target) if key == "$ref" => {
                found.extend(target.strip_prefix(prefix).map(str::to_owned));
            }
            _ => references_below(prefix, value, found),
        }),
        Json::Array(list) => list.iter().for_each(|value| references_below(prefix, value, found)),
        _ => {}
    }
}

/// Returns the schemas that every document may refer to.
fn common() -> Map<String, Json> {
    serde_json::from_str(include_str!("openapi/meta.json")).expect("openapi/meta.json holds a map of schemas")
}

#[cfg(test)]
mod tests;
