//! Compiles `/proto` with protox, so that no protoc has to be installed, and keeps the descriptors
//! for reflection.
#![expect(
    clippy::disallowed_methods,
    reason = "the environment is how cargo talks to a build script"
)]

use prost_types::FileDescriptorProto;
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

/// Files with the details of refusals, for reflection alone.
const DETAILS: &[&str] = &["google/rpc/error_details.proto", "google/rpc/status.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    // A path from the package: the same sources at another place are no change.
    println!("cargo:rerun-if-changed=../../proto");
    println!("cargo:rerun-if-changed=details");

    let mut compiler = protox::Compiler::new([&root])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(FILES)?;
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    fs::write(out.join("commented.binpb"), compiler.encode_file_descriptor_set())?;
    let described = compiler.file_descriptor_set();
    fs::write(out.join("methods.rs"), methods(&described.file))?;
    let mut bare = protox::Compiler::new([&*root, Path::new("details")])?;
    bare.include_imports(true).open_files(FILES)?.open_files(DETAILS)?;
    fs::write(out.join("insula.binpb"), bare.encode_file_descriptor_set())?;
    // Ordered maps, so that a message has one encoding: it stands for a request with an id.
    tonic_prost_build::configure().btree_map(".").compile_fds(described)?;
    Ok(())
}

/// Returns the macro `for_each_service`, which hands the services and methods of the admin API to
/// another macro.
fn methods(files: &[FileDescriptorProto]) -> String {
    let mut services = String::new();
    let described = files.iter().flat_map(|file| &file.service);
    for service in described {
        let name = service.name();
        services += &format!("{}_server::{name} \"insula.admin.v1.{name}\" {{\n", snake(name));
        for method in &service.method {
            let kind = match (method.client_streaming(), method.server_streaming()) {
                (false, false) => "unary",
                (false, true) => "server_streaming",
                (true, false) => "client_streaming",
                (true, true) => "streaming",
            };
            let method = method.name();
            services += &format!("{kind} \"/insula.admin.v1.{name}/{method}\" {};\n", snake(method));
        }
        services += "}\n";
    }
    let head = "/// Calls a macro with all services and methods of the admin API.\n#[macro_export]";
    format!("{head}\nmacro_rules! for_each_service {{ ($each:ident) => {{ $each! {{\n{services}}} }} }}\n")
}

/// Returns a name in snake case, as the generated code spells modules and functions.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
