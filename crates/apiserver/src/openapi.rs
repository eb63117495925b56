//! OpenAPI documents of what a cluster serves: version 3 for each group version, and version 2 in one piece.
//!
//! Documents are made when asked for and kept by content: a hash over the fingerprints of the APIs that make a group version
//! names its document before it exists, so that the index costs no document and a thousand tenants of one API share one.

mod gnostic;
mod paths;
pub mod serve;
mod v2;

use crate::{discovery, gzip};
use bytes::Bytes;
use insula_api::Json;
use insula_registry::{ApiVersion, Served};
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of documents that are kept, over all tenants.
const CACHE_BYTES_MAX: usize = 32 << 20;
/// Changes whenever documents of the same APIs would look different.
const FORM: &str = concat!("1 ", env!("CARGO_PKG_VERSION"));

const COMPONENTS: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";

/// A document and the hash that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Entity tag and `hash` parameter.
    pub hash: String,
    /// JSON; or protobuf, which OpenAPI v2 has too.
    pub bytes: Bytes,
    /// The same, compressed: nearly every client wants it so. `None` where it is not kept.
    pub gzip: Option<Bytes>,
}

impl Document {
    fn size(&self) -> usize {
        self.bytes.len() + self.gzip.as_ref().map_or(0, Bytes::len)
    }
}

/// How OpenAPI v2 is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum V2 {
    /// As everything else.
    Json,
    /// As gnostic reads it.
    Protobuf,
}

impl V2 {
    /// The type that the answer names.
    pub fn content_type(self) -> &'static str {
        match self {
            V2::Json => "application/json",
            V2::Protobuf => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        }
    }
}

/// Documents that were made, oldest out first.
#[derive(Debug, Default)]
pub struct Cache {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    documents: HashMap<String, Document>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Cache {
    /// `/openapi/v3`: where the documents are.
    pub fn index(&self, served: &[Served]) -> Json {
        let paths: Map<String, Json> = group_versions(served)
            .iter()
            .map(|(path, apis)| {
                let url = location(path, &hash_of(path, apis));
                (path.clone(), json!({"serverRelativeURL": url}))
            })
            .collect();
        json!({"paths": paths})
    }

    /// `/openapi/v3/<path>`, with a path such as `api/v1` or `apis/example.io/v1`.
    pub fn v3(&self, served: &[Served], path: &str) -> Option<Document> {
        let versions = group_versions(served);
        let apis = versions.get(path.trim_matches('/'))?;
        let hash = hash_of(path.trim_matches('/'), apis);
        Some(self.get_or_make(hash, || v3_document(apis).to_string().into_bytes()))
    }

    /// `/openapi/v2`.
    pub fn v2(&self, served: &[Served], form: V2) -> Document {
        let versions = group_versions(served);
        let mut all = Sha512::new();
        all.update(form.content_type());
        for (path, apis) in &versions {
            all.update(hash_of(path, apis));
        }
        let hash = discovery::hex_upper(&all.finalize());
        self.get_or_make(hash, || {
            let apis: Vec<_> = versions.into_values().flatten().collect();
            let document = v2::document(&apis);
            match form {
                V2::Json => document.to_string().into_bytes(),
                V2::Protobuf => gnostic::encoded(&document),
            }
        })
    }

    fn get_or_make(&self, hash: String, make: impl FnOnce() -> Vec<u8>) -> Document {
        if let Some(found) = self.kept().documents.get(&hash) {
            return found.clone();
        }
        // Made without the lock: two who ask at once both make it, and nobody else waits.
        let bytes = Bytes::from(make());
        let gzip = Some(Bytes::from(gzip::packed(&bytes)));
        let made = Document { hash, bytes, gzip };
        let mut kept = self.kept();
        if kept.documents.insert(made.hash.clone(), made.clone()).is_none() {
            kept.bytes += made.size();
            kept.order.push_back(made.hash.clone());
        }
        while kept.bytes > CACHE_BYTES_MAX {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some(gone) = kept.documents.remove(&oldest) {
                kept.bytes -= gone.size();
            }
        }
        made
    }

    /// A panic elsewhere leaves at worst a document that is not counted.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a document is, without a prefix: clients put their own before it.
pub fn location(path: &str, hash: &str) -> String {
    format!("/openapi/v3/{}?hash={hash}", path.trim_matches('/'))
}

type ApiOf<'a> = (&'a Served, &'a ApiVersion);

/// What is served by path, each by resource name.
fn group_versions(served: &[Served]) -> BTreeMap<String, Vec<ApiOf<'_>>> {
    let mut found: BTreeMap<String, Vec<ApiOf<'_>>> = BTreeMap::new();
    for one in served {
        for version in one.served_versions() {
            let path = match one.group().is_empty() {
                true => format!("api/{}", version.name),
                false => format!("apis/{}/{}", one.group(), version.name),
            };
            found.entry(path).or_default().push((one, version));
        }
    }
    for apis in found.values_mut() {
        apis.sort_by(|a, b| a.0.names().plural.cmp(&b.0.names().plural));
    }
    found
}

/// Names the document of a group version by what it is made of.
fn hash_of(path: &str, apis: &[ApiOf<'_>]) -> String {
    let mut hash = Sha512::new();
    hash.update(format!("{FORM} {path}"));
    for (served, version) in apis {
        let names = served.names();
        let (plural, kind, fingerprint) = (&names.plural, &names.kind, served.api.fingerprint);
        hash.update(format!(" {plural} {kind} {} {fingerprint:x}", version.name));
    }
    discovery::hex_upper(&hash.finalize())
}

fn v3_document(apis: &[ApiOf<'_>]) -> Json {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for (served, version) in apis {
        paths::add(&mut paths, served, version);
        let schema = insula_schema::openapi_v3(&version.openapi);
        schemas.extend(components(served, version, schema));
    }
    add_referenced(&paths, &mut schemas);
    let built_in = apis.iter().all(|(served, _)| served.api.strategy.traits().built_in);
    let title = if built_in {
        "Kubernetes"
    } else {
        "Kubernetes CRD Swagger"
    };
    json!({
        "openapi": "3.0.0",
        "info": {"title": title, "version": "v0.1.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// The schemas of a kind and of its list.
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

/// `io.example.v1.Widget`: the group's labels from the right, version, kind.
fn component(group: &str, version: &str, kind: &str) -> String {
    match group {
        "" => format!("io.k8s.api.core.{version}.{kind}"),
        _ => {
            let reversed: Vec<&str> = group.rsplit('.').collect();
            format!("{}.{version}.{kind}", reversed.join("."))
        }
    }
}

fn reference(component: &str) -> Json {
    json!({"$ref": format!("{COMPONENTS}{component}")})
}

/// Adds the common schemas that paths and schemas refer to, and those that these refer to.
fn add_referenced(paths: &Map<String, Json>, schemas: &mut Map<String, Json>) {
    let mut wanted = BTreeSet::new();
    paths
        .values()
        .chain(schemas.values())
        .for_each(|value| references(value, &mut wanted));
    let common = common();
    while let Some(name) = wanted.pop_first() {
        if let (false, Some(schema)) = (schemas.contains_key(&name), common.get(&name)) {
            references(schema, &mut wanted);
            schemas.insert(name, schema.clone());
        }
    }
}

fn references(value: &Json, found: &mut BTreeSet<String>) {
    match value {
        Json::Object(map) => map.iter().for_each(|(key, value)| match value.as_str() {
            Some(target) if key == "$ref" => {
                found.extend(target.strip_prefix(COMPONENTS).map(str::to_owned));
            }
            _ => references(value, found),
        }),
        Json::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Schemas that every document may refer to.
fn common() -> Map<String, Json> {
    serde_json::from_str(include_str!("openapi/meta.json")).expect("openapi/meta.json holds a map of schemas")
}

#[cfg(test)]
#[path = "openapi_tests.rs"]
mod tests;
