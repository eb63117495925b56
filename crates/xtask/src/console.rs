//! The packed files of the web console, made from their sources with Node.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

const SOURCES: &str = "crates/console/web";
const PACKED: &str = "crates/console/packed";

/// Use of the files that sources give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Writes them.
    Write,
    /// Compares them with what the sources give.
    Check,
}

impl Packing {
    /// Returns the use that the flag `--check` asks for.
    #[must_use]
    pub fn new(check: bool) -> Self {
        if check { Packing::Check } else { Packing::Write }
    }
}

/// Checks the sources, and packs them.
///
/// # Errors
/// Fails without Node, for a mistake or a failed test in the sources, and for packed files that are
/// not theirs.
pub fn run(root: &Path, packing: Packing) -> Result<()> {
    let sources = root.join(SOURCES);
    run_in(
        &sources,
        "npm",
        &["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
    )?;
    run_in(&sources, "npm", &["run", "--silent", "check"])?;
    let packed = root.join(PACKED);
    if packing == Packing::Write {
        return run_in(&sources, "node", &["pack.mjs", "../packed"]);
    }
    let made = root.join("target/console");
    let into = made.to_str().context("the path of the repository is no text")?;
    run_in(&sources, "node", &["pack.mjs", into])?;
    for entry in fs::read_dir(&made)? {
        let name = entry?.file_name();
        let differs = fs::read(made.join(&name))? != fs::read(packed.join(&name)).unwrap_or_default();
        let file = packed.join(&name);
        ensure!(
            !differs,
            "{} is not what its sources give: run `cargo xtask console`",
            file.display()
        );
    }
    Ok(())
}

fn run_in(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let status = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {program}: the console is packed with Node 20 or later"))?;
    ensure!(status.success(), "{program} {} failed", arguments.join(" "));
    Ok(())
}
