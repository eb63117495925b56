//! Files that documents name are there. Links are checked with the site.

use std::path::{Path, PathBuf};

/// Top-level names that begin a path in the repository.
const TOPS: [&str; 5] = ["config/", "crates/", "docs/", "e2e/", "proto/"];

/// Returns the documents: the Markdown files of the root, of `docs` and of its folders.
fn documents(root: &Path) -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/adr", "docs/for", "docs/guides"].map(|folder| root.join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| folder.read_dir().expect("the folder is there"));
    let paths = files.map(|file| file.expect("the folder can be read").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    paths.sort();
    paths
}

/// Returns the paths between backticks that begin in the root and end with a file name.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        let file = span.rsplit('/').next().unwrap_or_default();
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        plain && file.contains('.') && TOPS.iter().any(|top| span.starts_with(top))
    })
}

#[test]
fn files_that_documents_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut absent = Vec::new();
    for document in documents(&root) {
        let text = std::fs::read_to_string(&document).expect("the document can be read");
        let name = document.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let missing = named(&text).filter(|path| !root.join(path).exists());
        absent.extend(missing.map(|path| format!("{name}: there is no {path}")));
    }
    assert!(absent.is_empty(), "{}", absent.join("\n"));
}

#[test]
fn names_are_found() {
    let text = "`crates/api/src/lib.rs` and `cargo test`, [a](b.md#c), [d](https://e), `docs/x.md`";
    assert_eq!(named(text).collect::<Vec<_>>(), ["crates/api/src/lib.rs", "docs/x.md"]);
}
