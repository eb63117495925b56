//! The documents as a site: pages made from Markdown, with their search index.
//!
//! The site begins at `docs/README.md`, whose lists are its navigation, and has everything that
//! links lead to from there: documents as pages, other files of the repository as they are. So a
//! link to something that does not exist fails, and so does a document that no link leads to.
//!
//! The pages are checked in, and packed into `insula docs`, because the program is built without
//! this generator.

mod html;
mod layout;
mod page;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs,
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use self::page::Page;
use crate::{console::Packing, pictures};

/// The first page.
const FIRST: &str = "docs/README.md";
/// Folder of the files that are made.
const PACKED: &str = "crates/insula/packed";
/// A Rust expression: all files of the site, with their bytes.
const LIST: &str = "files.in";
/// Bytes of a screenshot, which is packed into the program. The browser's tests keep theirs to it.
const SCREENSHOT_BYTES_MAX: u64 = 60_000;
/// Files of the site that no document links to. `cargo xtask console` makes the script and the
/// style.
const ASSETS: [(&str, &str); 4] = [
    ("assets/docs.js", "crates/console/packed/docs.js"),
    ("assets/docs.css", "crates/console/packed/docs.css"),
    ("assets/icon.svg", "crates/console/packed/icon.svg"),
    ("assets/licenses.txt", "crates/console/packed/licenses.txt"),
];

/// Makes the pictures and the site, and writes them or compares them with what is there.
///
/// # Errors
/// Fails for a document with a broken link, for one that no link leads to, and for a file that is
/// not what its sources give.
pub fn run(root: &Path, packing: Packing) -> Result<()> {
    let pictures = pictures::all().map(|(name, text)| (format!("docs/pictures/{name}.svg"), text));
    for (file, text) in pictures {
        put(root, &file, &text, packing)?;
    }
    let files = made(root)?;
    for (name, text) in &files {
        put(root, &format!("{PACKED}/{name}"), text, packing)?;
    }
    let packed = root.join(PACKED);
    for file in listed(&packed, "")? {
        if files.contains_key(&file) {
            continue;
        }
        let path = packed.join(&file);
        let advice = "no document gives it: run `cargo xtask docs`";
        ensure!(packing == Packing::Write, "{}: {advice}", path.display());
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Writes a file, or compares it.
fn put(root: &Path, file: &str, text: &str, packing: Packing) -> Result<()> {
    let path = root.join(file);
    let same = fs::read_to_string(&path).is_ok_and(|found| found == text);
    if same {
        return Ok(());
    }
    let advice = "not what its sources give: run `cargo xtask docs`";
    ensure!(packing == Packing::Write, "{file}: {advice}");
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(&path, text).with_context(|| format!("cannot write {file}"))
}

/// Returns the paths of the files below a folder, from there.
fn listed(folder: &Path, below: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let Ok(entries) = folder.join(below).read_dir() else {
        return Ok(found);
    };
    for entry in entries {
        let entry = entry?;
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            found.extend(listed(folder, &format!("{name}/"))?);
        } else {
            found.push(name);
        }
    }
    Ok(found)
}

/// Returns the files that are made, by their paths in the site: pages, the search index, and the
/// list of all files for the program.
fn made(root: &Path) -> Result<BTreeMap<String, String>> {
    let (pages, others) = linked(root)?;
    check_anchors(&pages)?;
    for file in listed(root, "docs/")? {
        let is_shown = [".md", ".svg", ".webp"].iter().any(|end| file.ends_with(end));
        let is_linked = pages.contains_key(&file) || others.contains(&file);
        ensure!(!is_shown || is_linked, "no link leads to {file}");
        if file.ends_with(".webp") {
            let bytes = fs::metadata(root.join(&file))?.len();
            let limit = SCREENSHOT_BYTES_MAX;
            ensure!(bytes <= limit, "{file} has {bytes} bytes, and the limit is {limit}");
        }
    }
    let first = pages.get(FIRST).context("the first page is missing")?;
    let mut files: BTreeMap<_, _> = pages
        .iter()
        .map(|(file, page)| (address(file), layout::framed(page, &first.navigation)))
        .collect();
    files.insert("search.json".into(), search_index(&pages));
    // The list is in the folder of what is made.
    let up = "../".repeat(PACKED.split('/').count());
    let own = files.keys().map(|name| (name.clone(), name.clone()));
    let copied = others.iter().map(|file| (address(file), format!("{up}{file}")));
    let assets = ASSETS.map(|(name, file)| (name.to_owned(), format!("{up}{file}")));
    let all: BTreeMap<String, String> = own.chain(copied).chain(assets).collect();
    let lines: String = all
        .iter()
        .map(|(name, file)| format!("    ({name:?}, include_bytes!({file:?})),\n"))
        .collect();
    let list = format!("// Written by `cargo xtask docs`.\n&[\n{lines}]\n");
    files.insert(LIST.into(), list);
    Ok(files)
}

/// Returns the documents that links lead to from the first page, and the other files.
fn linked(root: &Path) -> Result<(BTreeMap<String, Page>, BTreeSet<String>)> {
    let (mut pages, mut others) = (BTreeMap::new(), BTreeSet::new());
    let mut waiting = VecDeque::from([FIRST.to_owned()]);
    while let Some(file) = waiting.pop_front() {
        if pages.contains_key(&file) || others.contains(&file) {
            continue;
        }
        if !file.ends_with(".md") {
            others.insert(file);
            continue;
        }
        let text = fs::read_to_string(root.join(&file)).with_context(|| format!("cannot read {file}"))?;
        let page = page::parse(&file, &text).with_context(|| file.clone())?;
        for link in &page.links {
            let target = root.join(&link.file);
            ensure!(target.is_file(), "{file} links to {}, which is no file", link.file);
            waiting.push_back(link.file.clone());
        }
        pages.insert(file, page);
    }
    Ok((pages, others))
}

/// Checks that the part of a page exists that a link names.
fn check_anchors(pages: &BTreeMap<String, Page>) -> Result<()> {
    for (file, page) in pages {
        for link in &page.links {
            let Some(anchor) = &link.anchor else { continue };
            let Some(target) = pages.get(&link.file) else {
                bail!("{file} links to a part of {}, which is no document", link.file);
            };
            let found = target.anchors.contains(anchor);
            ensure!(found, "{file} links to {}#{anchor}, which is no heading", link.file);
        }
    }
    Ok(())
}

/// Returns the parts of all pages as JSON, one a line, so that changes of two documents merge.
fn search_index(pages: &BTreeMap<String, Page>) -> String {
    let lines = pages.iter().flat_map(|(file, page)| {
        page.parts.iter().map(move |part| {
            let anchor = part
                .anchor
                .as_ref()
                .map_or(String::new(), |anchor| format!("#{anchor}"));
            json!({
                "id": format!("{}{anchor}", address(file)),
                "title": page.title,
                "heading": part.heading,
                "text": part.text,
            })
            .to_string()
        })
    });
    let lines: Vec<String> = lines.collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

/// Returns the path in the site of a file of the repository. Files outside of `docs` are below
/// `repository`.
fn address(file: &str) -> String {
    let path = match file.strip_prefix("docs/") {
        Some(path) => path.to_owned(),
        None => format!("repository/{file}"),
    };
    match path.strip_suffix(".md") {
        Some("README") => "index.html".to_owned(),
        Some(page) => match page.strip_suffix("/README") {
            Some(folder) => format!("{folder}/index.html"),
            None => format!("{page}.html"),
        },
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_addresses() {
        for (file, want) in [
            ("docs/README.md", "index.html"),
            ("docs/guides/releases.md", "guides/releases.html"),
            ("docs/adr/README.md", "adr/index.html"),
            ("docs/console/diff.webp", "console/diff.webp"),
            ("README.md", "repository/index.html"),
            ("config/insula.yaml", "repository/config/insula.yaml"),
        ] {
            assert_eq!(address(file), want);
        }
    }
}
