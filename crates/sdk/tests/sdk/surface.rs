//! The public items of the library, as they are recorded in `surface.txt`. A change is reviewed
//! with its difference; `cargo xtask bless surface` records it.

use expect_test::expect_file;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files whose public items are for the derive macro alone.
const INTERNAL: [&str; 1] = ["definition.rs"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns an item from its first line up to its body, in one line, and true if it has a body.
fn statement<'a>(first: &'a str, lines: &mut impl Iterator<Item = &'a str>) -> (String, bool) {
    let mut text = first.trim().to_owned();
    while !(text.ends_with('{') || text.ends_with(';') || text.ends_with('}') || text.ends_with(',')) {
        let Some(line) = lines.next() else { break };
        // Parameters stand on lines of their own.
        let line = line.trim();
        text += if text.ends_with('(') || line.starts_with(')') {
            ""
        } else {
            " "
        };
        text += line;
        while text.ends_with(',') {
            let Some(line) = lines.next() else { break };
            let line = line.trim();
            text += if line.starts_with(')') || line.starts_with('>') {
                ""
            } else {
                " "
            };
            text += line;
        }
    }
    let head = text.strip_suffix("{}").or_else(|| text.strip_suffix('{'));
    let has_body = head.is_some();
    let text = head.unwrap_or(&text).trim_end_matches([';', ' ']).replace(",)", ")");
    (text.trim_end_matches(',').to_owned(), has_body)
}

/// Returns true for the implementation of a trait by a type that is not private.
fn is_visible(item: &str, source: &str) -> bool {
    let named = item.split_once(" for ").map_or(item, |(_, named)| named);
    let name: String = named.chars().take_while(|c| c.is_alphanumeric()).collect();
    let is_own = |line: &str| line.starts_with("pub ") && line.contains(&format!(" {name}"));
    name.len() == 1 || source.lines().any(is_own)
}

/// Returns the public items of a file, in the form of rustfmt, in their order.
fn items(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut attributes: Vec<String> = Vec::new();
    // The block that the inner lines belong to: its name, and true if all its items are public.
    let mut block: Option<(String, bool)> = None;
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let text = line.trim();
        if line == "#[cfg(test)]" {
            break;
        }
        if line == "}" {
            block = None;
        }
        let is_note = text.starts_with("//") || text.is_empty();
        match (indent(line), &block) {
            _ if is_note => {}
            (0, _)
                if ["#[derive", "#[non_exh", "#[macro_export", "#[must_use"]
                    .iter()
                    .any(|a| text.starts_with(a)) =>
            {
                attributes.push(text.to_owned());
            }
            (0, _) if text.starts_with("#[") => {}
            (0, _) if text.starts_with("pub ") || text.starts_with("macro_rules!") => {
                let is_open = ["pub trait", "pub enum"].iter().any(|start| text.starts_with(start));
                let is_block = is_open || text.starts_with("pub struct");
                let (item, _) = statement(line, &mut lines);
                let is_exported = text.starts_with("pub ") || attributes.iter().any(|a| a == "#[macro_export]");
                if is_exported {
                    found.push([&attributes[..], std::slice::from_ref(&item)].concat().join(" "));
                }
                attributes.clear();
                block = is_block.then_some((item, is_open));
            }
            (0, _) if text.starts_with("impl") => {
                let (item, _) = statement(line, &mut lines);
                let is_of_trait = item.contains(" for ");
                found.extend((is_of_trait && is_visible(&item, source)).then(|| item.clone()));
                block = (!is_of_trait).then_some((item, false));
                attributes.clear();
            }
            (0, _) => {
                attributes.clear();
                block = None;
            }
            (4, Some((name, is_open))) if text != "}" && !text.starts_with("#[") && !text.starts_with("where") => {
                let is_item = text.starts_with("pub ") || *is_open;
                let (name, is_open) = (name.clone(), *is_open);
                let (item, has_body) = statement(line, &mut lines);
                // A provided method may be added; a required one breaks those who implement it.
                let provided = if is_open && has_body { " (provided)" } else { "" };
                if is_item {
                    let of = if is_open { name.split([':', '{']).next() } else { None };
                    let name = of.unwrap_or(&name).trim();
                    found.push(format!("    {item}{provided}    [{name}]"));
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_public_items_are_the_recorded_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let mut all = String::new();
    for file in files {
        let name = file.strip_prefix(root.join("src")).unwrap().to_str().unwrap();
        let items = items(&fs::read_to_string(&file).unwrap());
        if items.is_empty() || INTERNAL.contains(&name) {
            continue;
        }
        all += &format!("{name}\n");
        for item in items {
            all += &format!("  {item}\n");
        }
    }
    let arguments = fs::read_to_string(root.join("../sdk-derive/src/arguments.rs")).unwrap();
    let (_, known) = arguments.split_once("const KNOWN").unwrap();
    let (known, _) = known.split_once("];").unwrap();
    let known: Vec<&str> = known.lines().filter_map(|line| line.trim().strip_prefix('"')).collect();
    let known: Vec<&str> = known.iter().map(|name| name.trim_end_matches(['"', ','])).collect();
    all += &format!("#[resource(…)]: {}\n", known.join(", "));
    expect_file!["surface.txt"].assert_eq(&all);
}

#[test]
fn items_are_found_by_their_form() {
    let source = "//! X.\n\n/// A.\n#[derive(Debug)]\npub struct A {\n    pub a: u8,\n    b: u8,\n}\n\n\
                  impl A {\n    pub fn new(\n        a: u8,\n        b: u8,\n    ) -> Self {\n    }\n\n    \
                  fn own() {}\n}\n\npub trait B {\n    const C: u8;\n\n    fn d(&self) {\n    }\n}\n\n\
                  impl B for A {\n    const C: u8 = 1;\n}\n\npub(crate) enum E {\n    F,\n}\n\n\
                  pub enum G {\n    H,\n}\n\n#[cfg(test)]\nmod tests {}\n";
    let want = [
        "#[derive(Debug)] pub struct A",
        "    pub a: u8    [pub struct A]",
        "    pub fn new(a: u8, b: u8) -> Self    [impl A]",
        "pub trait B",
        "    const C: u8    [pub trait B]",
        "    fn d(&self) (provided)    [pub trait B]",
        "impl B for A",
        "pub enum G",
        "    H    [pub enum G]",
    ];
    assert_eq!(items(source), want);
}
