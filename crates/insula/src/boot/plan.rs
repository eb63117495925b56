//! Changes to a project: new files, and lines added beside markers. All of them are checked before
//! the first is made, so that a command that is refused has changed nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};

/// Changes of one command.
#[derive(Debug, Default)]
pub(super) struct Plan {
    new: BTreeMap<String, String>,
    edits: Vec<Edit>,
    /// Files that the program alone writes: the record, and what is built from it.
    owned: BTreeMap<String, String>,
    /// Files of `owned` that are replaced only if they are as the program wrote them.
    kept: Vec<String>,
}

#[derive(Debug)]
struct Edit {
    file: String,
    marker: &'static str,
    line: String,
    how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Above the marker, sorted into the lines there that begin with the same word.
    Sorted,
    /// Above the marker.
    Appended,
}

impl Plan {
    /// Writes a file that is not there.
    pub(super) fn create(&mut self, file: impl Into<String>, text: String) {
        self.new.insert(file.into(), text);
    }

    /// Writes a file that belongs to the program, also over a former one.
    pub(super) fn own(&mut self, file: impl Into<String>, text: String) {
        self.owned.insert(file.into(), text);
    }

    /// Writes a file that is built from the record. One that is there and differs stays, and the
    /// command fails, unless `overwrite` is set.
    pub(super) fn build(&mut self, file: impl Into<String>, text: String, overwrite: bool) {
        let file = file.into();
        if !overwrite {
            self.kept.push(file.clone());
        }
        self.own(file, text);
    }

    /// Adds a line to the sorted lines above a marker.
    pub(super) fn sort_in(&mut self, file: impl Into<String>, marker: &'static str, line: impl Into<String>) {
        self.edit(file, marker, line, How::Sorted);
    }

    /// Adds lines above a marker.
    pub(super) fn append(&mut self, file: impl Into<String>, marker: &'static str, line: impl Into<String>) {
        self.edit(file, marker, line, How::Appended);
    }

    fn edit(&mut self, file: impl Into<String>, marker: &'static str, line: impl Into<String>, how: How) {
        self.edits.push(Edit {
            file: file.into(),
            marker,
            line: line.into(),
            how,
        });
    }

    /// Formats new Rust files, by a function from text to text.
    pub(super) fn format(&mut self, format: impl Fn(&str) -> Option<String>) {
        for (_, text) in self.new.iter_mut().filter(|(file, _)| file.ends_with(".rs")) {
            if let Some(formatted) = format(text) {
                *text = formatted;
            }
        }
    }

    /// Makes the changes in a project. Returns a line for each file: `created a`, `changed b`.
    ///
    /// # Errors
    /// A file exists, or one that is edited has lost its marker. Nothing is changed then.
    pub(super) fn make(self, root: &Path) -> anyhow::Result<Vec<String>> {
        let Self {
            mut new,
            edits,
            owned,
            kept,
        } = self;
        for file in new.keys() {
            let path = root.join(file);
            ensure!(!path.exists(), "{} exists: nothing is overwritten", path.display());
        }
        for file in kept {
            let path = root.join(&file);
            let same = !path.exists() || fs::read_to_string(&path).is_ok_and(|text| Some(&text) == owned.get(&file));
            ensure!(
                same,
                "{} exists and differs from what would be written: --overwrite replaces it",
                path.display()
            );
        }
        let mut changed = BTreeMap::new();
        for edit in edits {
            if let Some(text) = new.get_mut(&edit.file) {
                *text = edited(text, &edit)?;
                continue;
            }
            let text = match changed.remove(&edit.file) {
                Some(text) => text,
                None => read(root, &edit.file)?,
            };
            changed.insert(edit.file.clone(), edited(&text, &edit)?);
        }
        let mut lines = Vec::new();
        for (word, files) in [("created", new), ("changed", changed), ("wrote", owned)] {
            for (file, text) in files {
                write(&root.join(&file), &text)?;
                lines.push(format!("{word} {file}"));
            }
        }
        Ok(lines)
    }
}

fn read(root: &Path, file: &str) -> anyhow::Result<String> {
    let path: PathBuf = root.join(file);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a text with an edit made.
fn edited(text: &str, edit: &Edit) -> anyhow::Result<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let Some(at) = lines.iter().position(|line| line.trim_end().ends_with(edit.marker)) else {
        bail!(
            "{} has no line that ends with `{}`: write it back where lines are to be added, or add this yourself:\n{}",
            edit.file,
            edit.marker,
            edit.line
        );
    };
    let indent: String = lines[at].chars().take_while(|c| c.is_whitespace()).collect();
    let indented = |line: &str| {
        if line.is_empty() {
            String::new()
        } else {
            format!("{indent}{line}")
        }
    };
    match edit.how {
        How::Appended => drop(lines.splice(at..at, edit.line.lines().map(indented))),
        How::Sorted => {
            let word = edit.line.split(' ').next().unwrap_or_default();
            let own = |line: &&String| line.trim_start().starts_with(word);
            let from = at - lines[..at].iter().rev().take_while(own).count();
            lines.insert(at, indented(&edit.line));
            lines[from..=at].sort_unstable();
        }
    }
    Ok(lines.join("\n") + "\n")
}

/// Returns a template with its `{{names}}` replaced.
///
/// # Panics
/// If a name has no value: templates are part of the program.
pub(super) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in values {
        text = text.replace(&format!("{{{{{name}}}}}"), value);
    }
    assert!(
        !text.contains("{{"),
        "a template names a value that it does not get: {text}"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "//! Groups.\n\npub mod b;\n// +boot:modules\n\nfn server() {\n    a()\n        // +boot:server\n}\n";

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lib.rs"), FILE).unwrap();
        folder
    }

    #[test]
    fn lines_are_added_above_their_markers() {
        let folder = folder();
        let mut plan = Plan::default();
        plan.sort_in("lib.rs", "// +boot:modules", "pub mod c;");
        plan.sort_in("lib.rs", "// +boot:modules", "pub mod a;");
        plan.append("lib.rs", "// +boot:server", ".one()\n.two()");
        plan.create("src/new.rs", "// +boot:kinds\n".into());
        plan.sort_in("src/new.rs", "// +boot:kinds", "mod y;");
        assert_eq!(
            plan.make(folder.path()).unwrap(),
            ["created src/new.rs", "changed lib.rs"]
        );
        let text = fs::read_to_string(folder.path().join("lib.rs")).unwrap();
        let wanted = FILE
            .replace("pub mod b;", "pub mod a;\npub mod b;\npub mod c;")
            .replace(
                "        // +boot:server",
                "        .one()\n        .two()\n        // +boot:server",
            );
        assert_eq!(text, wanted);
        let new = fs::read_to_string(folder.path().join("src/new.rs")).unwrap();
        assert_eq!(new, "mod y;\n// +boot:kinds\n");
    }

    #[test]
    fn a_plan_that_is_refused_changes_nothing() {
        let folder = folder();
        let mut plan = Plan::default();
        plan.create("lib.rs", String::new());
        plan.own("other.rs", String::new());
        let error = plan.make(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("lib.rs exists: nothing is overwritten"), "{error}");
        let mut plan = Plan::default();
        plan.create("new.rs", String::new());
        plan.sort_in("lib.rs", "// +boot:lost", "pub mod c;");
        let error = plan.make(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("no line that ends with `// +boot:lost`") && error.ends_with("pub mod c;"),
            "{error}"
        );
        let names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["lib.rs"]);
        assert_eq!(fs::read_to_string(folder.path().join("lib.rs")).unwrap(), FILE);
    }
}
