//! One home for each third-party crate: whoever wants what it does asks the crate that it lives in.
//!
//! `deny.toml` says the same for the whole dependency graph, for those who have cargo-deny.

use crate::{
    floors::{FLOORS, place},
    workspace::Package,
};

/// A third-party crate, or all whose names begin like it when it ends in `*`, and the folders that
/// may name it.
pub const HOMES: [(&str, &[&str]); 25] = [
    ("cel", &["cel"]),
    ("jsonschema", &["schema"]),
    ("json-patch", &["apply"]),
    ("redb", &["store"]),
    ("twox-hash", &["store"]),
    ("etcd-client", &["store-etcd"]),
    ("axum", &["apiserver", "server"]),
    ("flate2", &["apiserver"]),
    ("tokio-tungstenite", &["apiserver"]),
    ("tonic-health", &["admin"]),
    ("tonic-reflection", &["admin"]),
    ("tonic*", &["proto", "admin", "server"]),
    ("prost*", &["proto", "admin"]),
    ("protox", &["proto"]),
    ("opentelemetry*", &["server"]),
    ("tracing-opentelemetry", &["server"]),
    ("tracing-subscriber", &["server"]),
    ("prometheus-client", &["server"]),
    ("rcgen", &["auth", "server"]),
    ("jsonwebtoken", &["auth", "server"]),
    ("tokio-rustls", &["server"]),
    ("rustix", &["store", "server"]),
    ("kube*", &[]),
    ("k8s-openapi", &[]),
    ("mimalloc", &["insula"]),
];

/// Every dependency on a third-party crate outside its home, one sentence each. What is for
/// development only is exempt.
pub fn strangers(packages: &[Package]) -> Vec<String> {
    let rim = FLOORS.len() - 1;
    let shipped = packages.iter().filter_map(|package| {
        let (folder, height) = place(&package.name)?;
        (height != rim).then_some((folder, package))
    });
    let found = shipped.flat_map(|(folder, package)| {
        package.dependencies.iter().filter_map(move |dependency| {
            let homes = homes(&dependency.name)?;
            let rule = if homes.is_empty() {
                "only tests use it".into()
            } else {
                format!("it lives in {}", homes.join(", "))
            };
            (!homes.contains(&folder)).then(|| format!("{folder} -> {}: {rule}", dependency.name))
        })
    });
    found.collect()
}

/// The first entry that fits decides, so that the narrow ones stand before the wide ones.
fn homes(dependency: &str) -> Option<&'static [&'static str]> {
    let fits = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => dependency.starts_with(beginning),
        None => dependency == pattern,
    };
    HOMES.iter().find(|(pattern, _)| fits(pattern)).map(|(_, homes)| *homes)
}
