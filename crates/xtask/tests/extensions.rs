//! Facts about a request are passed by type. The untyped extensions of requests and answers are
//! used in one folder, where hyper and tonic know no other way.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The one folder that uses them.
const PORT: &str = "crates/edge/src/port/";
/// Files that use something else of the name, with its owner.
const OTHERS: [(&str, &str); 2] = [
    ("crates/server/src/identity.rs", "X.509 certificates"),
    ("crates/server/src/telemetry/context.rs", "spans of tracing"),
];
/// Uses of extensions: by their accessors, or by the field of a head.
const USES: [&str; 6] = [
    ".extensions()",
    ".extensions_mut()",
    ".extensions.get",
    ".extensions.insert",
    ".extensions.remove",
    "http::Extensions",
];

/// Returns the Rust sources below a folder, except for generated ones and those of this crate.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in folder.read_dir().expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir()
            && !["generated", "target", "xtask", "node_modules"]
                .iter()
                .any(|other| name == *other)
        {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Returns true for a source that uses extensions.
fn uses(text: &str) -> bool {
    // A chain of calls may be broken before any dot.
    let joined: String = text.split_whitespace().collect();
    USES.iter().any(|used| joined.contains(used))
}

#[test]
fn facts_of_requests_are_passed_by_type() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut users = Vec::new();
    for folder in ["crates", "e2e"] {
        for path in sources(&root.join(folder)) {
            if uses(&fs::read_to_string(&path).expect("the source can be read")) {
                let below = path.strip_prefix(&root).expect("it is below the root");
                users.push(below.to_string_lossy().into_owned());
            }
        }
    }
    let (of_port, mut others): (Vec<_>, Vec<_>) = users.into_iter().partition(|user| user.starts_with(PORT));
    others.sort();
    assert_eq!(others, OTHERS.map(|(file, _)| file), "pass the fact as an argument");
    assert_eq!(of_port, [format!("{PORT}crossing.rs")]);
}

#[test]
fn uses_are_found_wherever_a_line_breaks() {
    for (text, want) in [
        ("request.extensions().get::<Record>()", true),
        ("response\n    .extensions_mut()\n    .insert(held)", true),
        ("parts.extensions.remove::<OnUpgrade>()", true),
        ("server.extensions.permits.take(&cluster, kind)", false),
    ] {
        assert_eq!(uses(text), want, "{text}");
    }
}
