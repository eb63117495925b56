//! `insula version`, with the dependencies of the build.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use serde_json::json;

use crate::print::{self, Format};

/// Lock file with the exact versions of all dependencies, without their sources and checksums.
const LOCKED: &str = include_str!(concat!(env!("OUT_DIR"), "/locked.txt"));
/// Commit of the build, its date, and the machine that it is for. A build without git knows no
/// commit.
const COMMIT: &str = env!("INSULA_BUILD_COMMIT");
const DATE: &str = env!("INSULA_BUILD_DATE");
const TARGET: &str = env!("INSULA_BUILD_TARGET");
/// Version and build in one line.
pub(crate) const SHORT: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("INSULA_BUILD_COMMIT"),
    ", ",
    env!("INSULA_BUILD_DATE"),
    ", ",
    env!("INSULA_BUILD_TARGET"),
    ")"
);
/// Source of the program, for `/version` of a server.
pub(crate) const BUILD: insula_server::Build = insula_server::Build {
    commit: COMMIT,
    date: DATE,
};
/// Package of the program.
const ROOT: &str = "insula-insula";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Format of the output. JSON lists the version of every library, to look up known
    /// vulnerabilities.
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(crate) fn main(arguments: &Arguments) -> ExitCode {
    let version = insula_server::VERSION;
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let document = || {
        json!({
            "version": version, "commit": COMMIT, "date": DATE, "target": TARGET, "platform": platform,
            "dependencies": dependencies(LOCKED),
        })
    };
    let printed = match arguments.output {
        Format::Table | Format::Wide => print::line(&format!("insula {SHORT}")),
        Format::Name => print::line(version),
        Format::Json => print::line(&document().to_string()),
        Format::Yaml => print::yaml(&document()).and_then(|text| print::raw(&text)),
    };
    crate::ended(printed.map(|()| ExitCode::SUCCESS))
}

/// A package of a lock file.
#[derive(Default)]
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    is_ours: bool,
    /// Dependencies as `name`, or as `name version` if there are several versions.
    needs: Vec<&'a str>,
}

/// Returns name and version of all locked dependencies of the program. Test dependencies of our
/// crates are included, since a lock file does not distinguish them.
fn dependencies(locked: &str) -> Vec<serde_json::Value> {
    let packages: Vec<Package<'_>> = locked.split("[[package]]").skip(1).map(package).collect();
    let mut by_name: BTreeMap<&str, Vec<&Package<'_>>> = BTreeMap::new();
    for package in &packages {
        by_name.entry(package.name).or_default().push(package);
    }
    let (mut found, mut next) = (BTreeSet::new(), vec![ROOT]);
    while let Some(need) = next.pop() {
        let (name, version) = need.split_once(' ').unwrap_or((need, ""));
        for package in by_name.get(name).into_iter().flatten() {
            let meant = version.is_empty() || version == package.version;
            if meant && found.insert((package.name, package.version, package.is_ours)) {
                next.extend(&package.needs);
            }
        }
    }
    let foreign = found.into_iter().filter(|(_, _, is_ours)| !is_ours);
    foreign
        .map(|(name, version, _)| json!({"name": name, "version": version}))
        .collect()
}

fn package(text: &str) -> Package<'_> {
    let mut package = Package {
        is_ours: true,
        ..Package::default()
    };
    for line in text.lines() {
        let quoted = |text| str::trim(text).trim_end_matches(',').trim_matches('"');
        match line.split_once(" = ") {
            Some(("name", name)) => package.name = quoted(name),
            Some(("version", version)) => package.version = quoted(version),
            Some(("source", _)) => package.is_ours = false,
            None if line.starts_with(" \"") => package.needs.push(quoted(line)),
            _ => {}
        }
    }
    package
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_libraries_are_listed_and_others_are_not() {
        let locked = r#"version = 4

[[package]]
name = "a"
version = "1.0.0"
source = "registry"
dependencies = [
 "b 2.0.0",
]

[[package]]
name = "b"
version = "1.0.0"
source = "registry"

[[package]]
name = "b"
version = "2.0.0"
source = "registry"

[[package]]
name = "insula-insula"
version = "0.1.0"
dependencies = [
 "a",
]
"#;
        let want = [
            json!({"name": "a", "version": "1.0.0"}),
            json!({"name": "b", "version": "2.0.0"}),
        ];
        assert_eq!(dependencies(locked), want);
        let names: Vec<serde_json::Value> = dependencies(LOCKED)
            .into_iter()
            .map(|found| found["name"].clone())
            .collect();
        for name in ["rustls", "hyper", "redb", "serde_json"] {
            assert!(names.contains(&json!(name)), "{name}");
        }
        assert!(names.len() > 100 && !names.contains(&json!(ROOT)));
    }
}
