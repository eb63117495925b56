//! Tests of the layers, for this workspace and for the rule itself. A failure prints the forbidden
//! dependencies.

use std::{collections::BTreeSet, path::Path, process::Command};

use xtask::{
    floors, homes,
    workspace::{Dependency, Kind, Package, Workspace},
};

#[test]
fn every_crate_names_only_crates_below_it() {
    let workspace = Workspace::load().expect("cargo describes the workspace");
    let edges = floors::forbidden(&workspace.packages);
    assert!(
        edges.is_empty(),
        "forbidden:\n  {}\n\n{}",
        edges.join("\n  "),
        floors::picture()
    );
}

#[test]
fn every_third_party_crate_stays_in_its_home() {
    let workspace = Workspace::load().expect("cargo describes the workspace");
    let edges = homes::strangers(&workspace.packages);
    assert!(edges.is_empty(), "outside their home:\n  {}", edges.join("\n  "));
}

/// Returns what cargo compiles of the dependencies of packages: lines of name, version, features.
fn selected(root: &Path, edges: &str, packages: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--edges", edges])
        .args(["--format", "{p} {f}"])
        .args(packages)
        .current_dir(root)
        .output()
        .expect("cargo runs");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree {packages:?}: {problem}");
    let lines = String::from_utf8(output.stdout).expect("cargo prints text");
    let third_party = lines.lines().filter(|line| !line.contains(" (/"));
    third_party
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect()
}

/// So `cargo test -p`, and `cargo build` of the program, compile no dependency that a build of the
/// workspace has compiled.
#[test]
fn every_crate_selects_the_features_of_the_workspace() {
    let workspace = Workspace::load().expect("cargo describes the workspace");
    let all = selected(&workspace.root, "normal,build,dev", &["--workspace"]);
    let own = |edges: &str, package: &str| {
        let own = selected(&workspace.root, edges, &["--package", package]);
        let other: Vec<_> = own.difference(&all).collect();
        assert!(
            other.is_empty(),
            "{package} selects features of its own: run `cargo hakari generate`: {other:#?}"
        );
    };
    own("normal,build", "insula-insula");
    for Package { name, dependencies } in &workspace.packages {
        let is_named = dependencies
            .iter()
            .any(|dependency| dependency.name == floors::FEATURES);
        assert!(
            is_named || name == floors::FEATURES,
            "{name}: add `{}.workspace = true` to its dev-dependencies",
            floors::FEATURES
        );
        own("normal,build,dev", name);
    }
}

/// Parses packages such as `"store: api tokio +tempfile"`: a name and its dependencies. `+` marks a
/// development dependency.
fn packages(lines: &[&str]) -> Vec<Package> {
    let package = |line: &&str| {
        let (name, dependencies) = line.split_once(':').expect("a colon after the name");
        let dependency = |word: &str| {
            let kind = if word.starts_with('+') {
                Kind::Development
            } else {
                Kind::Normal
            };
            Dependency {
                name: word.trim_start_matches('+').to_owned(),
                kind,
            }
        };
        Package {
            name: name.to_owned(),
            dependencies: dependencies.split_whitespace().map(dependency).collect(),
        }
    };
    lines.iter().map(package).collect()
}

#[test]
fn the_rule_in_examples() {
    let allowed = packages(&[
        "insula-api: serde",
        "insula-proto: tonic tokio",
        "insula-schema: insula-api insula-cel +insula-api +tempfile",
        "insula-conversion: insula-schema insula-cel",
        "insula-store-etcd: insula-store tokio",
        "insula-admin: insula-registry insula-proto insula-auth",
        "insula-insula: insula-server insula-conversion",
        "insula-e2e: insula-server kube",
        "insula-cel: +insula-features",
    ]);
    assert_eq!(floors::forbidden(&allowed), Vec::<String>::new());
    for (line, want) in [
        (
            "insula-store: insula-registry",
            "store (ground) -> registry (heart): a crate names only crates below it",
        ),
        (
            "insula-store: +insula-server",
            "store (ground) -> server (roof): a crate names only crates below it",
        ),
        (
            "insula-cel: insula-schema",
            "cel (pure) -> schema (pure): a crate names only crates below it",
        ),
        (
            "insula-store: insula-store-etcd",
            "store (ground) -> store-etcd (ground): a crate names only crates below it",
        ),
        (
            "insula-apiserver: insula-admin",
            "apiserver (faces) -> admin (faces): a crate names only crates below it",
        ),
        (
            "insula-server: insula-insula",
            "server (roof) -> insula (roof): a crate names only crates below it",
        ),
        (
            "insula-cel: tokio",
            "cel (pure) -> tokio: this floor does no IO and knows no clock, chance or task",
        ),
        (
            "insula-server: insula-features",
            "server (roof) -> features (rim): a crate names only crates below it",
        ),
        (
            "insula-cellar: serde",
            "insula-cellar stands on no floor: add it to crates/xtask/src/floors.rs",
        ),
    ] {
        assert_eq!(floors::forbidden(&packages(&[line])), [want], "{line}");
    }
}

#[test]
fn homes_in_examples() {
    for (line, want) in [
        ("insula-cel: cel", &[][..]),
        ("insula-conversion: cel", &["conversion -> cel: it lives in cel"]),
        (
            "insula-server: tonic opentelemetry_sdk tonic-health",
            &["server -> tonic-health: it lives in admin"],
        ),
        (
            "insula-registry: opentelemetry",
            &["registry -> opentelemetry: it lives in server"],
        ),
        ("insula-apiserver: +kube", &["apiserver -> kube: it lives in sdk"]),
        ("insula-e2e: kube tonic etcd-client", &[]),
        ("insula-cel: +expect-test", &[]),
        (
            "insula-cel: expect-test",
            &["cel -> expect-test: a development dependency only"],
        ),
    ] {
        assert_eq!(homes::strangers(&packages(&[line])), want, "{line}");
    }
}
