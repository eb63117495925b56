//! The part of a version 2 document that an extension server serves: the paths of its group
//! version, and the definitions that they refer to. The rest of its document is left out, and so
//! are definitions that the server has itself, because clients read one of each name.

use super::{Made, V2, common, hex_upper, references_below, v2};
use insula_api::Json;
use serde_json::{Map, json};
use sha2::{Digest, Sha512};
use std::collections::BTreeSet;

const DEFINITIONS: &str = "#/definitions/";
/// Prefix of the names of our own core kinds.
const CORE: &str = "io.k8s.api.core.v1.";

/// A part in both formats.
#[derive(Debug)]
pub(crate) struct Extension {
    /// Hash of the extension server's whole document.
    pub(crate) source: String,
    pub(super) hash: String,
    json: Made,
    protobuf: Made,
}

impl Extension {
    /// Reads the document of an extension server.
    pub(crate) fn read(source: &[u8], (group, version): (&str, &str)) -> Self {
        let document: Json = serde_json::from_slice(source).unwrap_or_default();
        let (definitions, paths) = own(&document, (group, version));
        let hash = json!([definitions, paths]).to_string();
        Extension {
            source: hash_of(source),
            hash: hash_of(hash.as_bytes()),
            json: v2::pieces(definitions.clone(), paths.clone(), V2::Json),
            protobuf: v2::pieces(definitions, paths, V2::Protobuf),
        }
    }

    pub(super) fn made(&self, form: V2) -> Made {
        match form {
            V2::Json => self.json.clone(),
            V2::Protobuf => self.protobuf.clone(),
        }
    }

    /// Returns the bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let pieces = self.json.iter().chain(self.protobuf.iter());
        pieces.map(super::packed::Piece::size).sum()
    }
}

/// Returns the hash by which a document is known again.
pub(crate) fn hash_of(source: &[u8]) -> String {
    hex_upper(&Sha512::digest(source))
}

/// Returns definitions and paths of a group version.
fn own(document: &Json, (group, version): (&str, &str)) -> (Map<String, Json>, Map<String, Json>) {
    let prefix = format!("/apis/{group}/{version}/");
    let members = |field: &str| document[field].as_object().into_iter().flatten();
    let paths: Map<String, Json> = members("paths")
        .filter(|(path, item)| path.starts_with(&prefix) && item.is_object())
        .map(|(path, item)| (path.clone(), item.clone()))
        .collect();
    let of_version = |schema: &Json| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds
            .into_iter()
            .flatten()
            .any(|kind| kind["group"] == group && kind["version"] == version)
    };
    let mut wanted: BTreeSet<String> = members("definitions")
        .filter(|(_, schema)| of_version(schema))
        .map(|(name, _)| name.clone())
        .collect();
    paths
        .values()
        .for_each(|item| references_below(DEFINITIONS, item, &mut wanted));
    let ours = common();
    let mut definitions = Map::new();
    while let Some(name) = wanted.pop_first() {
        let found = document["definitions"].get(&name).filter(|schema| schema.is_object());
        let is_ours = ours.contains_key(&name) || name.starts_with(CORE);
        if let (Some(schema), false, false) = (found, is_ours, definitions.contains_key(&name)) {
            references_below(DEFINITIONS, schema, &mut wanted);
            definitions.insert(name, schema.clone());
        }
    }
    let names: BTreeSet<String> = definitions.keys().chain(ours.keys()).cloned().collect();
    let whole = |map: Map<String, Json>| {
        let severed = map.into_iter().map(|(name, value)| (name, severed(value, &names)));
        severed.collect()
    };
    (whole(definitions), whole(paths))
}

/// Replaces references to definitions that are not there by any object: clients refuse the whole
/// document for one of them.
fn severed(value: Json, names: &BTreeSet<String>) -> Json {
    match value {
        Json::Object(map) => {
            let target = map.get("$ref").and_then(Json::as_str);
            let is_lost = target.is_some_and(|target| {
                let name = target.strip_prefix(DEFINITIONS);
                !name.is_some_and(|name| names.contains(name))
            });
            match is_lost {
                true => json!({"type": "object"}),
                false => {
                    let members = map.into_iter().map(|(key, value)| (key, severed(value, names)));
                    Json::Object(members.collect())
                }
            }
        }
        Json::Array(list) => list.into_iter().map(|item| severed(item, names)).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_group_version_is_taken_and_no_reference_is_lost() {
        let to = |name: &str| json!({"$ref": format!("{DEFINITIONS}{name}")});
        let boats = json!([{"group": "a.b", "version": "v1", "kind": "Boat"}]);
        let parts =
            json!({"hull": to("com.example.Hull"), "lost": to("com.example.Lost"), "odd": {"$ref": "elsewhere"}});
        let document = json!({
            "definitions": {
                "com.example.Boat": {"x-kubernetes-group-version-kind": boats, "properties": parts},
                "com.example.Hull": {"type": "object", "properties": {"pod": to("io.k8s.api.core.v1.Pod")}},
                "com.example.Other": {"type": "object"},
                "io.k8s.api.core.v1.Pod": {"description": "not ours to define"},
            },
            "paths": {"/apis/a.b/v1/boats": {"get": {}}, "/apis/a.b/v2/boats": {"get": {}}, "/apis/a.b/v1/odd": 7},
        });
        let (definitions, paths) = own(&document, ("a.b", "v1"));
        assert_eq!(
            definitions.keys().collect::<Vec<_>>(),
            ["com.example.Boat", "com.example.Hull"]
        );
        assert_eq!(paths.keys().collect::<Vec<_>>(), ["/apis/a.b/v1/boats"]);
        let any = json!({"type": "object"});
        let boat = &definitions["com.example.Boat"]["properties"];
        assert_eq!((&boat["lost"], &boat["odd"]), (&any, &any));
        assert_eq!(definitions["com.example.Hull"]["properties"]["pod"], any);
        for nonsense in [&b"[]"[..], b"{", b"{\"paths\": 1, \"definitions\": [2]}"] {
            assert_eq!(Extension::read(nonsense, ("a.b", "v1")).hash, hash_of(b"[{},{}]"));
        }
    }
}
