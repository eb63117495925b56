//! Documents of files and folders, read as by `kubectl -f`.

use std::{
    fs::{self, DirEntry},
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde_json::Value;

/// Maximum number of bytes of a file. Larger files hold no manifests.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// How the folders of `-f` are read, for every command that takes files by `-f`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct FolderOptions {
    /// Read also the folders in the folders that are named.
    #[arg(long, short = 'R')]
    recursive: bool,
}

impl FolderOptions {
    /// Returns a named folder whose folders are not read; its files may be in these.
    pub(crate) fn skipped<'a>(&self, paths: &'a [PathBuf]) -> Option<&'a Path> {
        let has_folders = |path: &&PathBuf| {
            let mut entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.any(|entry| entry.path().is_dir())
        };
        let path = paths.iter().find(has_folders).filter(|_| !self.recursive);
        path.map(PathBuf::as_path)
    }
}

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
    read_with(paths, FolderOptions::default())
}

/// Reads all documents as [`read`] does, of folders as the options say.
pub(crate) fn read_with(paths: &[PathBuf], folders: FolderOptions) -> anyhow::Result<Vec<Document>> {
    let mut documents = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            io::stdin()
                .read_to_string(&mut text)
                .context("cannot read standard input")?;
            parse("standard input", &text, &mut documents)?;
        } else if path.is_dir() {
            let mut files = Vec::new();
            manifests(path, folders, &mut files)?;
            for file in files {
                read_file(&file, &mut documents)?;
            }
        } else {
            read_file(path, &mut documents)?;
        }
    }
    Ok(documents)
}

/// Finds the manifests of a folder, by name. As in kubectl, links to folders are not followed: one
/// to a folder above has no end.
fn manifests(folder: &Path, options: FolderOptions, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let unreadable = || format!("cannot read {}", folder.display());
    let entries: io::Result<Vec<DirEntry>> = fs::read_dir(folder).with_context(unreadable)?.collect();
    let mut entries = entries.with_context(unreadable)?;
    entries.sort_unstable_by_key(DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if entry.file_type().with_context(unreadable)?.is_dir() {
            if options.recursive {
                manifests(&path, options, files)?;
            }
        } else if path.is_file() && matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(path);
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folders_in_folders_are_read_when_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("b/c");
        fs::create_dir_all(&deep).unwrap();
        for file in ["a.yaml", "d.json", "b/c/one.yml", "b/two.yaml", "b/notes.txt"] {
            let name = file.rsplit('/').next().unwrap();
            fs::write(root.path().join(file), format!("{{\"kind\": \"{name}\"}}")).unwrap();
        }
        symlink(root.path(), deep.join("above")).unwrap();
        let paths = [root.path().to_owned()];
        let kinds = |recursive| -> Vec<String> {
            let documents = read_with(&paths, FolderOptions { recursive }).unwrap();
            documents
                .iter()
                .map(|document| document.text("/kind").to_owned())
                .collect()
        };
        assert_eq!(kinds(false), ["a.yaml", "d.json"]);
        assert_eq!(kinds(true), ["a.yaml", "one.yml", "two.yaml", "d.json"]);
        assert_eq!(FolderOptions { recursive: false }.skipped(&paths), Some(root.path()));
        assert_eq!(FolderOptions { recursive: true }.skipped(&paths), None);
    }
}
