//! One home for each third-party crate. Other crates use its functionality through that home.
//!
//! `deny.toml` states the same for the whole dependency graph, for use with cargo-deny.

use crate::{
    floors::{FLOORS, place},
    workspace::{Kind, Package},
};

/// Third-party crates and the folders that may depend on them. A name that ends in `*` covers all
/// crates with that prefix.
pub const HOMES: [(&str, &[&str]); 32] = [
    ("regex", &[]),
    ("regex-automata", &["goformat"]),
    ("regex-syntax", &["goformat", "conversion"]),
    ("cel", &["cel"]),
    ("jsonschema", &["schema"]),
    ("json-patch", &["apply"]),
    ("redb", &["store"]),
    ("twox-hash", &["store"]),
    ("etcd-client", &["store-etcd"]),
    ("axum", &["edge", "apiserver", "console", "server", "insula"]),
    ("flate2", &["apiserver", "catalog", "console"]),
    ("aws-lc-rs", &["console"]),
    ("tokio-tungstenite", &["apiserver"]),
    ("tonic-health", &["admin"]),
    ("tonic-reflection", &["admin"]),
    ("tonic*", &["proto", "edge", "admin", "server"]),
    ("prost*", &["proto", "admin"]),
    ("protox", &["proto"]),
    ("opentelemetry*", &["server"]),
    ("tracing-opentelemetry", &["server"]),
    ("tracing-subscriber", &["server"]),
    ("prometheus-client", &["server"]),
    ("rcgen", &["auth", "server"]),
    ("jsonwebtoken", &["auth", "server"]),
    ("tokio-rustls", &["edge", "server"]),
    ("rustix", &["store", "edge", "server"]),
    ("kube*", &["sdk"]),
    ("k8s-openapi", &["sdk"]),
    ("schemars", &["sdk"]),
    ("syn", &["sdk-derive"]),
    ("quote", &["sdk-derive"]),
    ("mimalloc", &["insula"]),
];

/// Third-party crates that the tests of every crate may use, and that no crate ships.
const FOR_TESTS: [&str; 1] = ["expect-test"];

/// Returns one sentence for each dependency on a third-party crate outside its home. A development
/// dependency counts like any other, except for crates that are meant for tests.
pub fn strangers(packages: &[Package]) -> Vec<String> {
    let rim = FLOORS.len() - 1;
    let shipped = packages.iter().filter_map(|package| {
        let (folder, height) = place(&package.name)?;
        (height != rim).then_some((folder, package))
    });
    let found = shipped.flat_map(|(folder, package)| {
        package.dependencies.iter().filter_map(move |dependency| {
            let name = dependency.name.as_str();
            if FOR_TESTS.contains(&name) {
                let shipped = dependency.kind != Kind::Development;
                return shipped.then(|| format!("{folder} -> {name}: a development dependency only"));
            }
            let homes = homes(name)?;
            let rule = if homes.is_empty() {
                "only tests use it".into()
            } else {
                format!("it lives in {}", homes.join(", "))
            };
            (!homes.contains(&folder)).then(|| format!("{folder} -> {name}: {rule}"))
        })
    });
    found.collect()
}

/// Returns the home of a dependency. The first entry that matches decides, so narrow entries stand
/// before wide ones.
fn homes(dependency: &str) -> Option<&'static [&'static str]> {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => dependency.starts_with(beginning),
        None => dependency == pattern,
    };
    HOMES.iter().find(|(pattern, _)| fits(pattern)).map(|(_, homes)| *homes)
}
