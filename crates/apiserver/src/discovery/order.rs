//! The text of discovery documents, with fields in the order of Kubernetes' types.
//!
//! Objects of JSON have no order, but scripts search these documents as text, and Kubernetes' own
//! tests do: `"name":"pods"` comes before everything else of its entry.

use insula_api::Json;
use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};

/// Fields of a whole document.
const DOCUMENT: &[&str] = &[
    "kind",
    "apiVersion",
    "metadata",
    "groupVersion",
    "name",
    "groups",
    "versions",
    "preferredVersion",
    "serverAddressByClientCIDRs",
    "resources",
    "items",
];
/// Fields of all types within documents; no two of them need different orders.
const WITHIN: &[&str] = &[
    "metadata",
    "name",
    "creationTimestamp",
    "resource",
    "subresource",
    "responseKind",
    "scope",
    "singularResource",
    "acceptedTypes",
    "singularName",
    "namespaced",
    "groupVersion",
    "group",
    "version",
    "kind",
    "verbs",
    "shortNames",
    "categories",
    "subresources",
    "storageVersionHash",
    "versions",
    "preferredVersion",
    "serverAddressByClientCIDRs",
    "clientCIDR",
    "serverAddress",
    "resources",
    "freshness",
];

/// A part of a discovery document.
pub(crate) struct Ordered<'a> {
    value: &'a Json,
    order: &'static [&'static str],
}

impl<'a> Ordered<'a> {
    /// Wraps a whole document.
    pub(crate) fn document(value: &'a Json) -> Self {
        Ordered { value, order: DOCUMENT }
    }

    fn within(value: &'a Json) -> Self {
        Ordered { value, order: WITHIN }
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Json::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                let known = self.order.iter().filter_map(|name| fields.get_key_value(*name));
                // Fields of extension servers that no type has.
                let others = fields.iter().filter(|(name, _)| !self.order.contains(&name.as_str()));
                for (name, value) in known.chain(others) {
                    map.serialize_entry(name, &Ordered::within(value))?;
                }
                map.end()
            }
            Json::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Ordered::within(item))?;
                }
                list.end()
            }
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(document: &Json, want: &str) {
        assert_eq!(serde_json::to_string(&Ordered::document(document)).unwrap(), want);
    }

    /// The texts are those of a Kubernetes server, without spaces.
    #[test]
    fn documents_are_in_the_order_of_kubernetes_types() {
        check(
            &json!({"apiVersion": "v1", "groupVersion": "apps/v1", "kind": "APIResourceList", "resources": [
                {"categories": ["all"], "group": "autoscaling", "kind": "Scale", "name": "a", "namespaced": true,
                 "shortNames": ["b"], "singularName": "", "storageVersionHash": "x", "verbs": ["get"], "version": "v1"}
            ]}),
            concat!(
                r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","#,
                r#""resources":[{"name":"a","singularName":"","namespaced":true,"#,
                r#""group":"autoscaling","version":"v1","kind":"Scale","verbs":["get"],"#,
                r#""shortNames":["b"],"categories":["all"],"storageVersionHash":"x"}]}"#,
            ),
        );
        check(
            &json!({"apiVersion": "v1", "kind": "APIGroupList", "groups": [
                {"name": "apps", "preferredVersion": {"version": "v1", "groupVersion": "apps/v1"},
                 "versions": [{"version": "v1", "groupVersion": "apps/v1"}]}]}),
            concat!(
                r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","#,
                r#""versions":[{"groupVersion":"apps/v1","version":"v1"}],"#,
                r#""preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}"#,
            ),
        );
        check(
            &json!({"kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"serverAddress": "a:1", "clientCIDR": "0.0.0.0/0"}]}),
            concat!(
                r#"{"kind":"APIVersions","versions":["v1"],"#,
                r#""serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"a:1"}]}"#,
            ),
        );
        check(
            &json!({"apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "metadata": {}, "items": [
                {"metadata": {"creationTimestamp": null, "name": "apps"}, "versions": [{"freshness": "Current",
                 "version": "v1", "resources": [{"resource": "a", "responseKind": {"group": "", "kind": "A",
                 "version": ""}, "scope": "Namespaced", "shortNames": ["b"], "singularResource": "c", "verbs": ["get"],
                 "subresources": [{"acceptedTypes": [], "responseKind": {}, "subresource": "s", "verbs": []}]}]}]}]}),
            concat!(
                r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","#,
                r#""metadata":{},"items":[{"metadata":{"name":"apps","creationTimestamp":null},"#,
                r#""versions":[{"version":"v1","resources":[{"resource":"a","#,
                r#""responseKind":{"group":"","version":"","kind":"A"},"scope":"Namespaced","#,
                r#""singularResource":"c","verbs":["get"],"shortNames":["b"],"#,
                r#""subresources":[{"subresource":"s","responseKind":{},"acceptedTypes":[],"#,
                r#""verbs":[]}]}],"freshness":"Current"}]}]}"#,
            ),
        );
    }

    #[test]
    fn unknown_fields_come_last() {
        check(
            &json!({"a": 1, "kind": "APIGroup", "versions": [{"b": {"kind": 1, "name": 2}, "version": "v1"}]}),
            r#"{"kind":"APIGroup","versions":[{"version":"v1","b":{"name":2,"kind":1}}],"a":1}"#,
        );
    }
}
