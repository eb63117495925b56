//! Documents of files and folders, read as by `kubectl -f`.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde_json::Value;

/// Maximum number of bytes of a file. Larger files hold no manifests.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// One document of a file.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// File of the document, for messages.
    pub(crate) file: String,
    pub(crate) value: Value,
}

impl Document {
    pub(crate) fn text(&self, pointer: &str) -> &str {
        text(&self.value, pointer)
    }
}

/// Returns the text at a JSON pointer, or an empty one.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Reads all documents of files and folders, in order. Of a folder it reads `.yaml`, `.yml` and
/// `.json` files by name; `-` is standard input; the items of a `List` are separate documents.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .context("cannot read standard input")?;
            parse("standard input", &text, &mut documents)?;
        } else if path.is_dir() {
            for file in manifests(path)? {
                read_file(&file, &mut documents)?;
            }
        } else {
            read_file(path, &mut documents)?;
        }
    }
    Ok(documents)
}

fn manifests(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_file() && matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn read_file(path: &Path, documents: &mut Vec<Document>) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let unreadable = || format!("cannot read {name}");
    if fs::metadata(path).with_context(unreadable)?.len() > FILE_BYTES_MAX {
        bail!("{name} is larger than {} MiB", FILE_BYTES_MAX >> 20);
    }
    let text = fs::read_to_string(path).with_context(unreadable)?;
    parse(&name, &text, documents)
}

fn parse(name: &str, text: &str, documents: &mut Vec<Document>) -> anyhow::Result<()> {
    let values: Vec<Value> =
        serde_saphyr::from_multiple(text).with_context(|| format!("{name} is neither YAML nor JSON"))?;
    for mut value in values {
        let is_list = value["kind"] == "List" && value["items"].is_array();
        let items = match value.get_mut("items").filter(|_| is_list).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ if value.is_null() => Vec::new(),
            _ => vec![value],
        };
        for value in items {
            if !value.is_object() {
                bail!("{name}: a document is no object");
            }
            documents.push(Document {
                file: name.to_owned(),
                value,
            });
        }
    }
    Ok(())
}
