//! Bill of materials of the program in CycloneDX 1.5, made from `cargo metadata`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{commit_seconds, timestamp, version};
use crate::workspace::cargo;

/// Package of the program.
const PROGRAM: &str = "insula-insula";

/// Returns the bill: every package that is compiled into the program, with version, licence,
/// checksum and dependencies. Build scripts and tests are left out.
///
/// # Errors
/// Fails when cargo does not describe the workspace.
pub fn bill_of_materials(root: &Path) -> Result<String> {
    let out = cargo(root)
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-musl"])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(
        out.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata printed no JSON")?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let bill = bill(&metadata, &checksums(&lock), commit_seconds(root)).context("cargo describes no program")?;
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn bill(metadata: &Value, checksums: &BTreeMap<String, String>, seconds: u64) -> Option<Value> {
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let needs: BTreeMap<&str, BTreeSet<&str>> = metadata["resolve"]["nodes"]
        .as_array()?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, shipped(node))))
        .collect();
    let program = packages.iter().find(|(_, package)| package["name"] == PROGRAM)?.0;
    let mut reached = BTreeSet::from([*program]);
    let mut next = vec![*program];
    while let Some(id) = next.pop() {
        let new = needs.get(id).into_iter().flatten().filter(|id| reached.insert(id));
        next.extend(new);
    }
    let url = |id: &str| packages.get(id).map(|package| purl(package));
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for id in &reached {
        let package = packages.get(id)?;
        let on: BTreeSet<String> = needs.get(id).into_iter().flatten().filter_map(|id| url(id)).collect();
        dependencies.push(json!({"ref": purl(package), "dependsOn": on}));
        if id != program {
            components.push(component(package, checksums));
        }
    }
    components.sort_by_key(|component| component["purl"].to_string());
    dependencies.sort_by_key(|dependency| dependency["ref"].to_string());
    let mut about = component(packages.get(program)?, checksums);
    about["type"] = "application".into();
    Some(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "timestamp": timestamp(seconds)?,
            "component": about,
            "tools": {"components": [{"type": "application", "name": "cargo xtask dist", "version": version()}]},
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns the packages that a package's code names; those of build scripts and tests have a kind.
fn shipped(node: &Value) -> BTreeSet<&str> {
    let of_code = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    let all = node["deps"].as_array().into_iter().flatten();
    all.filter(of_code)
        .filter_map(|dependency| dependency["pkg"].as_str())
        .collect()
}

fn purl(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", text("name"), text("version").replace('+', "%2B"))
}

fn component(package: &Value, checksums: &BTreeMap<String, String>) -> Value {
    let purl = purl(package);
    let mut component = json!({
        "type": "library", "name": package["name"], "version": package["version"],
        "bom-ref": purl, "purl": purl,
    });
    if let Some(licence) = package["license"].as_str() {
        // Old manifests separate alternatives by a slash.
        let expression = licence.replace(" / ", "/").replace('/', " OR ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    let key = format!(
        "{} {}",
        package["name"].as_str().unwrap_or_default(),
        package["version"].as_str().unwrap_or_default()
    );
    if let Some(checksum) = checksums.get(&key) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// Returns the checksums of `Cargo.lock` by name and version.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let packages = lock.split("[[package]]").skip(1);
    let value = |package: &str, key: &str| {
        let prefix = format!("{key} = \"");
        let line = package.lines().find_map(|line| line.strip_prefix(&prefix))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    packages
        .filter_map(|package| {
            let key = format!("{} {}", value(package, "name")?, value(package, "version")?);
            Some((key, value(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_lists_what_is_compiled_in_and_nothing_else() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let bill: Value = serde_json::from_str(&bill_of_materials(&root).expect("cargo runs")).expect("is JSON");
        let components = bill["components"].as_array().expect("a list");
        let named = |name: &str| components.iter().find(|component| component["name"] == name);
        let tokio = named("tokio").expect("the program uses tokio");
        assert_eq!(tokio["licenses"][0]["expression"], "MIT");
        assert_eq!(tokio["hashes"][0]["content"].as_str().map(str::len), Some(64));
        assert!(named("insula-registry").is_some());
        for absent in ["kube", "proptest", "protox", "insula-xtask", "insula-insula"] {
            assert!(named(absent).is_none(), "{absent}");
        }
        assert_eq!(bill["metadata"]["component"]["name"], "insula-insula");
        let unlicensed = components.iter().filter(|component| component["licenses"].is_null());
        let names: Vec<String> = unlicensed.map(|component| component["name"].to_string()).collect();
        assert!(names.is_empty(), "{names:?}");
        let known: BTreeSet<String> = components
            .iter()
            .map(|component| component["purl"].to_string())
            .collect();
        let edges = bill["dependencies"].as_array().expect("a list");
        let targets = edges
            .iter()
            .flat_map(|edge| edge["dependsOn"].as_array().into_iter().flatten());
        let dangling: Vec<String> = targets.map(Value::to_string).filter(|on| !known.contains(on)).collect();
        assert!(dangling.is_empty(), "{dangling:?}");
    }
}
