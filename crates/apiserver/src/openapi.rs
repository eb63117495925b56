//! OpenAPI documents of a cluster's APIs: version 3 for each group version, and version 2 in one
//! piece.
//!
//! Documents are made on request and cached by content: a hash over the fingerprints of a group
//! version's APIs names its document before it is made, so that the index costs no document and a
//! thousand tenants of one API share one. Version 2 is composed of a part for each group version,
//! so that a change of an API costs its own part and no other.

mod discovery;
mod extension;
mod gnostic;
mod packed;
mod paths;
pub mod serve;
mod v2;

pub(crate) use extension::{Extension, hash_of as extension_hash};

use crate::discovery::hex_upper;
use bytes::Bytes;
use insula_api::Json;
use insula_catalog::{ApiVersion, BlockingExecutor, Error, Result, Served};
use packed::Piece;
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Compressed bytes of cached documents, of all tenants.
const CACHE_BYTES_MAX: usize = 32 << 20;
/// Version of the documents' form: to be changed whenever documents of the same APIs change.
const FORM: &str = concat!("4 ", env!("CARGO_PKG_VERSION"));

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
    fn v3(&self) -> Json {
        match &self.discovery {
            Some(path) => discovery::document(path),
            None => v3_document(&self.apis),
        }
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

/// A cache of parts of documents. The oldest part is evicted first.
pub struct Cache {
    /// Executor that makes the parts: many large schemas take a while.
    aside: BlockingExecutor,
    kept: Mutex<Kept>,
}

impl Default for Cache {
    fn default() -> Self {
        Cache::new(|work| work())
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept().fmt(f)
    }
}

#[derive(Debug, Default)]
struct Kept {
    parts: HashMap<String, Made>,
    order: VecDeque<String>,
    bytes: usize,
}

/// A finished part: in version 2, definitions and paths; in version 3 all in one.
type Made = [Piece; 2];

impl Cache {
    /// Returns an empty cache whose parts are made on an executor.
    pub fn new(aside: BlockingExecutor) -> Self {
        Cache {
            aside,
            kept: Mutex::default(),
        }
    }

    /// Reads the version 2 document of an extension server.
    pub(crate) fn extension(&self, source: &[u8], of: (&str, &str)) -> Extension {
        let mut made = None;
        (self.aside)(&mut || made = Some(Extension::read(source, of)));
        made.unwrap_or_else(|| Extension::read(b"", of))
    }

    /// Returns a document as a gzip stream, which nearly every client accepts.
    pub(crate) fn gzip(&self, wanted: &Wanted<'_>) -> Bytes {
        let parts = self.parts(wanted);
        let of = |at: usize| parts.iter().map(move |part| part[at].clone());
        match wanted.form {
            None => packed::gzip(&of(0).collect::<Vec<_>>()),
            Some(form) => {
                let [head, middle, tail] = v2::frame(form);
                let (definitions, paths) = (of(0), of(1));
                let all = [head]
                    .into_iter()
                    .chain(definitions)
                    .chain([middle])
                    .chain(paths)
                    .chain([tail]);
                packed::gzip(&all.collect::<Vec<_>>())
            }
        }
    }

    /// Returns a document without compression.
    ///
    /// # Errors
    /// Broken compressed data.
    pub(crate) fn plain(&self, wanted: &Wanted<'_>) -> Result<Bytes> {
        let broken = |error| Error::Internal(format!("the OpenAPI document {} is broken: {error}", wanted.hash));
        packed::plain(&self.gzip(wanted)).map_err(broken)
    }

    fn parts(&self, wanted: &Wanted<'_>) -> Vec<Made> {
        let find = |part: &Part<'_>| self.kept().parts.get(&part.hash).cloned();
        let mut found: Vec<Option<Made>> = wanted.parts.iter().map(find).collect();
        let make = |part: &Part<'_>| match wanted.form {
            None => [Piece::compress(part.v3().to_string().as_bytes()), Piece::compress(b"")],
            Some(form) => v2::part(&part.apis, form),
        };
        // Made without the lock: two concurrent requests may both make a part, and no other one
        // waits.
        if found.iter().any(Option::is_none) {
            (self.aside)(&mut || {
                for (found, part) in found.iter_mut().zip(&wanted.parts) {
                    found.get_or_insert_with(|| self.keep(&part.hash, make(part)));
                }
            });
        }
        found
            .into_iter()
            .flatten()
            .chain(wanted.extensions.iter().cloned())
            .collect()
    }

    fn keep(&self, hash: &str, made: Made) -> Made {
        let size = |made: &Made| made.iter().map(Piece::size).sum::<usize>() + hash.len() * 2;
        let mut kept = self.kept();
        if kept.parts.insert(hash.to_owned(), made.clone()).is_none() {
            kept.bytes += size(&made);
            kept.order.push_back(hash.to_owned());
        }
        while kept.bytes > CACHE_BYTES_MAX {
            let Some(oldest) = kept.order.pop_front() else { break };
            if let Some(gone) = kept.parts.remove(&oldest) {
                kept.bytes -= size(&gone);
            }
        }
        made
    }

    /// A poisoned lock leaves at worst a part that is not counted.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

fn v3_document(apis: &[ApiOf<'_>]) -> Json {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for (served, version) in apis {
        paths::add(&mut paths, served, version);
        let schema = insula_schema::openapi_v3(&version.openapi);
        schemas.extend(components(served, version, schema));
        schemas.extend(subresource_components(served, version, insula_schema::openapi_v3));
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
