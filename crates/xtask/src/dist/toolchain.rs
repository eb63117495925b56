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
        let candidates = compilers(target, host);
        let Some(compiler) = candidates.iter().find(|name| on_path(name).is_some()) else {
            let (last, package) = (candidates.last(), package(target, host));
            let last = last.map(String::as_str).unwrap_or_default();
            return Err(format!(
                "no C compiler: install {last}, as Debian's {package} has it, or name one in CC_{name}"
            ));
        };
        variables.push((format!("CC_{name}"), compiler.clone()));
    }
    Ok(variables)
}

/// Returns C compilers for a target, the best one first. Those for glibc do for musl on another
/// processor: the C code of the program uses no type and no function in which the two differ, which
/// linking and a run show.
fn compilers(target: &str, host: &str) -> [String; 2] {
    let processor = processor(target);
    let second = match processor == self::processor(host) {
        true => "musl-gcc".to_owned(),
        false => format!("{processor}-linux-gnu-gcc"),
    };
    [format!("{processor}-linux-musl-gcc"), second]
}

/// Returns the Debian package that has the last compiler.
fn package(target: &str, host: &str) -> String {
    let processor = processor(target);
    match processor == self::processor(host) {
        true => "musl-tools".to_owned(),
        false => format!("gcc-{}-linux-gnu", processor.replace('_', "-")),
    }
}

fn processor(target: &str) -> &str {
    target.split('-').next().unwrap_or_default()
}

fn rustc(root: &Path, arguments: &[&str]) -> Result<String> {
    let out = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .current_dir(root)
        .args(arguments)
        .output()?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_are_those_of_the_processor() {
        let (arm, intel) = ("aarch64-unknown-linux-musl", "x86_64-unknown-linux-musl");
        let here = "x86_64-unknown-linux-gnu";
        assert_eq!(compilers(intel, here), ["x86_64-linux-musl-gcc", "musl-gcc"]);
        assert_eq!(
            compilers(arm, here),
            ["aarch64-linux-musl-gcc", "aarch64-linux-gnu-gcc"]
        );
        assert_eq!(package(intel, here), "musl-tools");
        assert_eq!(package(arm, here), "gcc-aarch64-linux-gnu");
        assert_eq!(package(intel, "aarch64-unknown-linux-gnu"), "gcc-x86-64-linux-gnu");
    }
}
