//! Edits of kubeconfigs, atomic and under kubectl's lock.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{Entry, File, Paths, Section};

/// Longest wait for another program that edits the same file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// An entry to add or to replace.
#[derive(Debug)]
pub(crate) struct Put {
    pub(crate) section: Section,
    pub(crate) name: String,
    pub(crate) entry: Entry,
}

/// Changes to make at once.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub(crate) puts: Vec<Put>,
    /// The new current context.
    pub(crate) current: Option<String>,
}

impl Edit {
    /// Writes the changes: each entry to the file that has it, new ones and the current context to
    /// the first file.
    ///
    /// # Errors
    /// A file cannot be written, or another program holds its lock for five seconds.
    pub(crate) fn write(self, paths: &Paths) -> anyhow::Result<()> {
        let default = paths.default_file().to_owned();
        let mut lock = Vec::new();
        for path in &paths.0 {
            if path.exists() || *path == default {
                lock.push(Lock::take(path)?);
            }
        }
        let mut files = Vec::new();
        for path in &paths.0 {
            match File::read(path)? {
                Some(file) => files.push((file, false)),
                None if *path == default => files.push((File::new(path), false)),
                None => {}
            }
        }
        let first = files.iter().position(|(file, _)| file.path == default).unwrap_or(0);
        for put in self.puts {
            let has = |(file, _): &(File, bool)| file.find(put.section, &put.name).is_some();
            let index = files.iter().position(has).unwrap_or(first);
            let (file, changed) = &mut files[index];
            *changed |= file.put(put);
        }
        if let Some(current) = self.current {
            let (file, changed) = &mut files[first];
            *changed |= file.document["current-context"] != current;
            file.document["current-context"] = json!(current);
        }
        for (file, _) in files.iter().filter(|(_, changed)| *changed) {
            file.write()?;
        }
        Ok(())
    }
}

impl File {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            header: String::new(),
            document: json!({"apiVersion": "v1", "kind": "Config"}),
        }
    }

    /// Adds or replaces an entry. Returns false if nothing changes.
    fn put(&mut self, put: Put) -> bool {
        let (list, field) = put.section.names();
        let is_near = self.path.parent().unwrap_or(Path::new("")) == put.entry.folder;
        // Relative paths stay relative in their folder only.
        let content = match is_near {
            true => put.entry.content,
            false => put.entry.absolute(),
        };
        if !self.document[list].is_array() {
            self.document[list] = json!([]);
        }
        let Some(entries) = self.document[list].as_array_mut() else {
            return false;
        };
        match entries.iter_mut().find(|entry| entry["name"] == put.name) {
            Some(entry) if entry[field] == content => return false,
            Some(entry) => entry[field] = content,
            None => {
                let mut entry = json!({"name": put.name});
                entry[field] = content;
                entries.push(entry);
            }
        }
        true
    }

    /// Replaces the file by a complete new one. A link stays a link, and the mode stays.
    fn write(&self) -> anyhow::Result<()> {
        let text = format!("{}{}", self.header, text(&self.document)?);
        write_atomically(&self.path, &text)
    }
}

/// Replaces a file by a complete new one, with the old one's mode, or 0600.
pub(super) fn write_atomically(path: &Path, text: &str) -> anyhow::Result<()> {
    let unwritable = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(unwritable)?;
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = fs::metadata(&target).map_or(0o600, |found| found.permissions().mode() & 0o777);
    let partial = beside(&target, &format!(".{}.partial", std::process::id()));
    let written = (|| -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, &target)
    })();
    if written.is_err() {
        // It may not exist; the error that matters is returned.
        let _ = fs::remove_file(&partial);
    }
    written.with_context(unwritable)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The lock that kubectl takes, too: a file `<kubeconfig>.lock`.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> anyhow::Result<Self> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let lock = beside(path, ".lock");
        let begun = Instant::now();
        loop {
            match fs::OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(_) => return Ok(Self(lock)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && begun.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_INTERVAL);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
                    "{} is there: another program edits the kubeconfig, or was killed while it did; then remove it",
                    lock.display()
                ),
                Err(error) => return Err(error).with_context(|| format!("cannot write {}", lock.display())),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Whoever removed it meanwhile has freed it, too.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes a document of its own, complete or not at all.
pub(crate) fn write_document(path: &Path, document: &Value) -> anyhow::Result<()> {
    write_atomically(path, &text(document)?)
}

/// Returns the text of a kubeconfig, with each datum on the line of its field: readers that are not
/// YAML parsers take the rest of that line.
pub(crate) fn text(document: &Value) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = serde_saphyr::to_string_with_options(document, options)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}
