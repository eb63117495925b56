//! Files that the build would otherwise generate, against their sources: the code and descriptors
//! of `/proto`, and the descriptors that etcd-client's build script asks a protoc for.
//! `cargo xtask proto` writes them.

// `cargo xtask proto` tells the tests by a variable to write what they compare.
#![allow(clippy::disallowed_methods)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use prost::Message;
use prost_types::FileDescriptorSet;
use serde_json::Value;

/// Folder of the admin API's files, below `/proto`.
const ADMIN: &str = "insula/admin/v1";
/// Files that etcd-client's build script compiles, below its folder `proto`.
const ETCD: &[&str] = &[
    "proto/etcd/api/authpb/auth.proto",
    "proto/etcd/api/etcdserverpb/rpc.proto",
    "proto/etcd/api/mvccpb/kv.proto",
    "proto/etcd/server/etcdserver/api/v3election/v3electionpb/v3election.proto",
    "proto/etcd/server/etcdserver/api/v3lock/v3lockpb/v3lock.proto",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the admin API's files by name, in one order on every machine.
fn admin_files() -> Vec<String> {
    let folder = root().join("proto").join(ADMIN);
    let entries = fs::read_dir(folder).expect("the admin API is there");
    let names = entries.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"));
    let mut files: Vec<String> = names.map(|name| format!("{ADMIN}/{name}")).collect();
    files.sort_unstable();
    files
}

fn compiler(includes: &[PathBuf]) -> protox::Compiler {
    let mut compiler = protox::Compiler::new(includes).expect("the folders are there");
    compiler.include_imports(true);
    compiler
}

/// Compares a generated file with the one in the repository, or writes it.
fn check(path: &Path, generated: &[u8]) {
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(path, generated).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let recorded = fs::read(path).unwrap_or_default();
    assert!(
        recorded == generated,
        "{} is not what its sources generate: run `cargo xtask proto`",
        path.display()
    );
}

#[test]
fn code_and_descriptors_are_those_of_the_admin_api() {
    let generated = root().join("crates/proto/generated");
    let mut described = compiler(&[root().join("proto")]);
    described.include_source_info(true);
    let opened = described.open_files(admin_files());
    opened.expect("the admin API compiles");
    let admin = described.file_descriptor_set();

    let out = tempfile::tempdir().expect("a folder can be made");
    // Names, by which messages are found in the descriptors to be shown as JSON.
    let mut config = prost_build::Config::new();
    config.enable_type_names();
    // Ordered maps, so that equal requests encode to equal bytes: idempotency compares them.
    tonic_prost_build::configure()
        .btree_map(".")
        .codec_path("crate::codec::CheckedCodec")
        .out_dir(out.path())
        .compile_fds_with_config(admin, config)
        .expect("code for the admin API");
    let code = fs::read(out.path().join("insula.admin.v1.rs")).expect("the code was written");
    check(&generated.join("insula.admin.v1.rs"), &code);

    check(&generated.join("insula.binpb"), &described.encode_file_descriptor_set());
}

/// `.cargo/protoc` answers with the file of the version that is locked.
#[test]
fn descriptors_are_those_of_the_etcd_client() {
    let (version, folder) = etcd_client();
    let mut compiler = compiler(&[folder.join("proto")]);
    let files = ETCD.iter().map(|file| folder.join(file));
    compiler.open_files(files).expect("etcd's files compile");
    let set = compiler.encode_file_descriptor_set();
    let descriptors = root().join(".cargo/descriptors");
    check(&descriptors.join(format!("etcd-client-{version}.binpb")), &set);
    let files = fs::read_dir(descriptors).expect("the folder is there").count();
    assert_eq!(
        files, 1,
        "remove the descriptors of other versions from .cargo/descriptors"
    );
    let set = FileDescriptorSet::decode(&*set).expect("a descriptor set");
    assert!(set.file.iter().any(|file| file.package() == "etcdserverpb"));
}

/// Returns the locked version of etcd-client and the folder of its sources.
fn etcd_client() -> (String, PathBuf) {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(root()).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(
            output.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    };
    // A build has fetched the packages of this platform, and those of no other.
    let about = run("rustc", &["-vV"]);
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let platform = ["--filter-platform", host.expect("rustc names its host")];
    let metadata = ["metadata", "--format-version", "1", "--locked", "--offline"];
    let metadata = run(env!("CARGO"), &[metadata.as_slice(), &platform].concat());
    let metadata: Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let client = packages.iter().find(|package| package["name"] == "etcd-client");
    let client = client.expect("store-etcd depends on etcd-client");
    let text = |key: &str| client[key].as_str().expect("a text").to_owned();
    let manifest = PathBuf::from(text("manifest_path"));
    (text("version"), manifest.parent().expect("a folder").to_owned())
}
