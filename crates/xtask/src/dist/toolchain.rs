//! Compilers for a target: Rust's standard library, a C compiler for the cryptography and the
//! allocator, and the linker that Rust brings along.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::tools::on_path;

/// Returns the target that programs of this machine have.
pub(super) fn host(root: &Path) -> Result<String> {
    let about = rustc(root, &["-vV"]).context("cannot run rustc")?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}

/// Returns the variables with which cargo builds a target.
///
/// # Errors
/// Returns a sentence with what is missing and how it is had.
pub(super) fn find(root: &Path, target: &str, host: &str) -> Result<Vec<(String, String)>, String> {
    let sysroot = rustc(root, &["--print", "sysroot"]).unwrap_or_default();
    let library = PathBuf::from(sysroot.trim())
        .join("lib/rustlib")
        .join(target)
        .join("lib");
    if !library.is_dir() {
        let added = Command::new("rustup")
            .current_dir(root)
            .args(["target", "add", target])
            .status()
            .is_ok_and(|status| status.success());
        if !added || !library.is_dir() {
            return Err(format!(
                "Rust's standard library is not installed, and `rustup target add {target}` fails"
            ));
        }
    }
    if target == host {
        return Ok(Vec::new());
    }
    let name = target.replace('-', "_");
    let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
    let mut variables = vec![(linker, "rust-lld".to_owned())];
    if env::var_os(format!("CC_{name}")).is_none() {
        let processor = target.split('-').next().unwrap_or_default();
        let own = format!("{processor}-linux-musl-gcc");
        let is_native = host.split('-').next() == Some(processor);
        let candidates = [own.as_str(), "musl-gcc"];
        let compiler = candidates
            .into_iter()
            .filter(|name| *name != "musl-gcc" || is_native)
            .find(|name| on_path(name).is_some());
        let Some(compiler) = compiler else {
            let package = if is_native {
                ", as Debian's musl-tools has it,"
            } else {
                ""
            };
            return Err(format!(
                "no C compiler: install {own}{package} or name one in CC_{name}"
            ));
        };
        variables.push((format!("CC_{name}"), compiler.to_owned()));
    }
    Ok(variables)
}

fn rustc(root: &Path, arguments: &[&str]) -> Result<String> {
    let out = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .current_dir(root)
        .args(arguments)
        .output()?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
