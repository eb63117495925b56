//! Compiles `/proto` with protox, so that no protoc has to be installed, and keeps the descriptors
//! for reflection.
#![expect(
    clippy::disallowed_methods,
    reason = "the environment is how cargo talks to a build script"
)]

use std::{env, error::Error, fs, path::Path};

/// Files of the admin API. Imports come along.
const FILES: &[&str] = &[
    "insula/admin/v1/access.proto",
    "insula/admin/v1/api.proto",
    "insula/admin/v1/backup.proto",
    "insula/admin/v1/cluster.proto",
    "insula/admin/v1/common.proto",
    "insula/admin/v1/conversion.proto",
    "insula/admin/v1/maintenance.proto",
    "insula/admin/v1/migration.proto",
    "insula/admin/v1/object.proto",
    "insula/admin/v1/operation.proto",
    "insula/admin/v1/quota.proto",
    "insula/admin/v1/workspace.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", root.display());

    let mut compiler = protox::Compiler::new([&root])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?;
    let descriptors = Path::new(&env::var("OUT_DIR")?).join("insula.binpb");
    fs::write(descriptors, compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
