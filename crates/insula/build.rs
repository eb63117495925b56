//! Link options of the release build.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Generic code makes thousands of equal functions; LLD keeps one of each, and the program gets
    // a tenth smaller.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") && links_with_lld() {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        // Relocations take a sixteenth of the space when packed.
        if loader_unpacks_relocations() {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}

/// Returns true if this machine's loader reads packed relocations, as glibc does since 2.36. A
/// program that has them says so, and an older loader refuses it.
fn loader_unpacks_relocations() -> bool {
    let is_native = env::var("HOST").ok() == env::var("TARGET").ok();
    let version = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let minor = version
        .ok()
        .and_then(|text| text.trim().strip_prefix("glibc 2.")?.parse().ok());
    is_native && minor.is_some_and(|minor: u32| minor >= 36)
}

/// Returns true if the compiler links with the LLD that it brings along, as it does on Linux unless
/// another linker is set.
fn links_with_lld() -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let target = variable("TARGET");
    let is_default = variable("RUSTC_LINKER").is_empty() && !variable("CARGO_ENCODED_RUSTFLAGS").contains("link");
    let sysroot = Command::new(variable("RUSTC")).args(["--print", "sysroot"]).output();
    let Ok(sysroot) = sysroot.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()) else {
        return false;
    };
    let lld = Path::new(&sysroot).join(format!("lib/rustlib/{target}/bin/gcc-ld/ld.lld"));
    is_default && target == "x86_64-unknown-linux-gnu" && lld.exists()
}
