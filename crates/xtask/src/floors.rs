//! The layers of crates. A crate depends only on crates of lower layers; the exceptions are listed
//! here.

use crate::workspace::{Dependency, Kind, Package};

/// A layer: crates that do not depend on each other, unless [`SAME_FLOOR`] lists the pair.
#[derive(Debug)]
pub struct Floor {
    /// Common name of the layer.
    pub name: &'static str,
    /// Folder names: the package is `insula-<folder>`.
    pub crates: &'static [&'static str],
    /// Description of its contents.
    pub what: &'static str,
}

/// The layers, from the lowest up. `docs/ARCHITECTURE.md` shows the same table.
pub const FLOORS: [Floor; 8] = [
    Floor {
        name: "words",
        crates: &["api", "meter", "proto"],
        what: "names and shapes",
    },
    Floor {
        name: "pure",
        crates: &["goformat", "cel", "schema", "conversion", "apply", "auth"],
        what: "functions over values: no tokio, clock, randomness, tracing",
    },
    Floor {
        name: "ground",
        crates: &["store", "store-etcd"],
        what: "objects with order: revisions, snapshots, watches",
    },
    Floor {
        name: "heart",
        crates: &["catalog", "access", "admission", "registry"],
        what: "objects with meaning: what is served, who may, what must hold, verbs",
    },
    Floor {
        name: "gate",
        crates: &["edge", "pipeline"],
        what: "the way of a request to the verbs: edge knows no object, pipeline no wire format",
    },
    Floor {
        name: "faces",
        crates: &["apiserver", "admin", "console", "controllers"],
        what: "faces of one registry, and the console in front of them",
    },
    Floor {
        name: "roof",
        crates: &["server", "sdk-derive", "sdk", "insula"],
        what: "the only crates with main, environment, telemetry",
    },
    Floor {
        name: "rim",
        crates: &["e2e", "example-fleet", "sim", "bench", "xtask", "features"],
        what: "development only",
    },
];

/// Pairs of crates of one layer: the first may depend on the second.
pub const SAME_FLOOR: [(&str, &str); 22] = [
    ("cel", "goformat"),
    ("schema", "goformat"),
    ("conversion", "goformat"),
    ("auth", "cel"),
    ("schema", "cel"),
    ("conversion", "cel"),
    ("conversion", "schema"),
    ("apply", "schema"),
    ("store-etcd", "store"),
    ("access", "catalog"),
    ("admission", "catalog"),
    ("admission", "access"),
    ("registry", "catalog"),
    ("registry", "access"),
    ("registry", "admission"),
    ("pipeline", "edge"),
    ("admin", "apiserver"),
    ("insula", "server"),
    ("sdk", "server"),
    ("example-fleet", "e2e"),
    // Histories of the program are checked as those of the simulation.
    ("e2e", "sim"),
    ("sdk", "sdk-derive"),
];

/// The package that selects third-party features. Every crate has it as a development dependency,
/// and the program as a dependency: it ships the features that tests ran with.
pub const FEATURES: &str = "insula-features";

/// Dependencies that bring time, randomness, threads or I/O into the functions over values. `proto`
/// is exempt: the code generated for gRPC names its transport.
const NOT_IN_PURE: [&str; 14] = [
    "tokio",
    "tokio-util",
    "tokio-stream",
    "futures-util",
    "tracing",
    "getrandom",
    "rand",
    "hyper",
    "axum",
    "tonic",
    "redb",
    "etcd-client",
    "rustls",
    "tempfile",
];

/// Returns one sentence for each dependency that the layers forbid, in the order of the packages.
pub fn forbidden(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(forbidden_of).collect()
}

/// Returns the table of layers as text, top layer first.
pub fn picture() -> String {
    let floors = FLOORS.iter().rev().map(|floor| {
        let Floor { name, crates, what } = floor;
        format!("{name:8}{:44}{what}\n", crates.join("  "))
    });
    let arrows: Vec<_> = SAME_FLOOR.iter().map(|(from, to)| format!("{from} -> {to}")).collect();
    let rule = "A crate names only crates below it; on the same floor only: ";
    format!("{}\n{rule}{}", floors.collect::<String>(), arrows.join(", "))
}

fn forbidden_of(package: &Package) -> Vec<String> {
    let Some((from, height)) = place(&package.name) else {
        return vec![format!(
            "{} stands on no floor: add it to crates/xtask/src/floors.rs",
            package.name
        )];
    };
    let selects = |dependency: &&Dependency| {
        dependency.name == FEATURES && (from == "insula" || dependency.kind == Kind::Development)
    };
    let ours = package
        .dependencies
        .iter()
        .filter(|one| !selects(one))
        .filter_map(|dependency| {
            let (to, below) = place(&dependency.name)?;
            let allowed = below < height || SAME_FLOOR.contains(&(from, to));
            let (own, other) = (FLOORS[height].name, FLOORS[below].name);
            (!allowed).then(|| format!("{from} ({own}) -> {to} ({other}): a crate names only crates below it"))
        });
    let pure = height <= 1 && from != "proto";
    let impure = package.dependencies.iter().filter(move |dependency| {
        pure && dependency.kind == Kind::Normal && NOT_IN_PURE.contains(&dependency.name.as_str())
    });
    let impure = impure.map(|dependency| {
        let own = FLOORS[height].name;
        format!(
            "{from} ({own}) -> {}: this floor does no IO and knows no clock, chance or task",
            dependency.name
        )
    });
    ours.chain(impure).collect()
}

/// Returns a package's folder name, and the index of its layer.
pub(crate) fn place(package: &str) -> Option<(&'static str, usize)> {
    let folder = package.strip_prefix("insula-")?;
    let on = |(height, floor): (usize, &Floor)| Some((*floor.crates.iter().find(|name| **name == folder)?, height));
    FLOORS.iter().enumerate().find_map(on)
}
