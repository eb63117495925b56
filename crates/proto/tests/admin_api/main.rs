//! The admin API's descriptors: lint, compatibility with what is recorded, and the reference.

// `cargo xtask proto` tells the tests by a variable to write what they compare.
#![allow(clippy::disallowed_methods)]

mod baseline;
mod lint;
mod names;
mod reference;
mod visit;

use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Prefix of the packages that are ours.
const OURS: &str = "insula.";

/// Returns all files that the server's reflection serves, imports included.
fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).expect("a descriptor set");
    set.file
}

/// Compiles one file of the package `insula.test.v1` for the examples of a rule.
fn compile(source: &str) -> Vec<FileDescriptorProto> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let package = folder.path().join("insula/test/v1");
    std::fs::create_dir_all(&package).expect("the folder can be made");
    let text = format!("syntax = \"proto3\";\npackage insula.test.v1;\n{source}\n");
    std::fs::write(package.join("example.proto"), text).expect("the example can be written");
    let mut compiler = protox::Compiler::new([folder.path()]).expect("the folder is there");
    compiler.include_imports(true).include_source_info(true);
    compiler
        .open_file("insula/test/v1/example.proto")
        .unwrap_or_else(|error| panic!("{error}\n{source}"));
    compiler.file_descriptor_set().file
}
