//! `insula boot init repo`: the files of a new project.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail, ensure};
use clap::Args;

use super::{
    make, names,
    plan::{Plan, fill},
    project::{Project, RECORD},
};
use crate::print;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Domain of the project's groups, such as example.com.
    #[arg(long)]
    domain: String,
    /// Name of the package and its program [default: the name of the folder].
    #[arg(long)]
    name: Option<String>,
    /// Checkout of Insula to take the library from.
    #[arg(long, value_name = "FOLDER", env = "INSULA_SOURCE", hide_env_values = true)]
    source: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    names::domain(&arguments.domain)?;
    let root = env::current_dir().context("the current folder cannot be read")?;
    if let Ok((found, project)) = Project::find(&root) {
        bail!(
            "{} is the project {} already; add to it with `insula boot create`",
            found.display(),
            project.name
        );
    }
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => name_of(&root)?,
    };
    check_name(&name)?;
    let source = arguments.source.as_deref().map(checkout).transpose()?;
    let project = Project {
        name,
        domain: arguments.domain.clone(),
        kinds: Vec::new(),
    };
    let code = make(plan(&project, source.as_deref())?, &root)?;
    print::line("next: insula boot create group version resource --group GROUP --version v1 --kind KIND")?;
    Ok(code)
}

/// Returns the plan of a new project. `source` is the checkout that it takes the library from.
fn plan(project: &Project, source: Option<&Path>) -> anyhow::Result<Plan> {
    let dependency = match source {
        Some(source) => format!("{{ path = {:?} }}", source.join("crates/sdk")),
        None => format!("{:?}", env!("CARGO_PKG_VERSION")),
    };
    let module = names::module(&project.name);
    let values = [
        ("name", project.name.as_str()),
        ("crate", &module),
        ("domain", &project.domain),
        ("dependency", &dependency),
    ];
    let mut plan = Plan::default();
    for (file, template) in [
        ("Cargo.toml", include_str!("templates/Cargo.toml.tmpl")),
        (".gitignore", include_str!("templates/gitignore.tmpl")),
        ("README.md", include_str!("templates/README.md.tmpl")),
        ("src/lib.rs", include_str!("templates/lib.rs.tmpl")),
        ("src/main.rs", include_str!("templates/main.rs.tmpl")),
        ("src/apis.rs", include_str!("templates/apis.rs.tmpl")),
        ("src/controllers.rs", include_str!("templates/controllers.rs.tmpl")),
        ("tests/api/main.rs", include_str!("templates/tests.rs.tmpl")),
    ] {
        plan.create(file, fill(template, &values));
    }
    if let Some(source) = source {
        let text = include_str!("templates/cargo_config.toml.tmpl");
        let source_text = source.display().to_string();
        plan.create(".cargo/config.toml", fill(text, &[("source", &source_text)]));
        // The versions that the library is tested with.
        let lock = source.join("Cargo.lock");
        let lock = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        plan.create("Cargo.lock", lock);
    }
    plan.own(RECORD, project.record()?);
    Ok(plan)
}

/// Returns a checkout as an absolute path.
fn checkout(folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = std::path::absolute(folder).with_context(|| format!("{} is no path", folder.display()))?;
    ensure!(
        folder.join("crates/sdk/Cargo.toml").is_file(),
        "{} is no checkout of Insula: it has no crates/sdk",
        folder.display()
    );
    Ok(folder)
}

fn name_of(folder: &Path) -> anyhow::Result<String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = name.trim_matches('-').to_owned();
    ensure!(!name.is_empty(), "the folder has no name: give one by --name");
    Ok(name)
}

/// Names that the package cannot have: cargo's and those of crates that it uses.
const TAKEN: [&str; 10] = [
    "alloc",
    "core",
    "insula",
    "insula-sdk",
    "proc-macro",
    "schemars",
    "serde",
    "serde-json",
    "std",
    "test",
];

fn check_name(name: &str) -> anyhow::Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    ensure!(
        name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(fits),
        "name {name:?}: lower-case letters, digits and hyphens, a letter first; give another by --name"
    );
    let hyphens = name.replace('_', "-");
    ensure!(
        !TAKEN.contains(&hyphens.as_str()) && names::module(name) == name.replace('-', "_"),
        "name {name:?}: it is taken by Rust or a library; give another by --name"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages_are_checked() {
        for good in ["fleet", "my-fleet2", "a_b"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "2a", "Fleet", "a b", "test", "serde_json", "match"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert_eq!(name_of(Path::new("/tmp/My Fleet")).unwrap(), "my-fleet");
        assert!(name_of(Path::new("/")).is_err());
    }

    #[test]
    fn a_published_library_is_named_by_its_version() {
        let project = Project {
            name: "fleet".into(),
            domain: "example.com".into(),
            kinds: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        plan(&project, None).unwrap().make(folder.path()).unwrap();
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("insula-sdk = \"0."), "{manifest}");
        assert!(!folder.path().join(".cargo").exists());
        let again = plan(&project, None)
            .unwrap()
            .make(folder.path())
            .unwrap_err()
            .to_string();
        assert!(again.contains("exists: nothing is overwritten"), "{again}");
    }
}
