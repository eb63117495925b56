//! The examples of `docs/clients` in other languages than Rust, with code generated from `proto`.
//!
//! Compilers and packages come from the registries, as in `clients.rs`; the messages are generated
//! anew at each run. Go's generators are asked directly, so that no protoc has to be installed.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use prost::Message;
use prost_types::{
    FileDescriptorSet,
    compiler::{CodeGeneratorRequest, CodeGeneratorResponse},
};

use crate::{
    Server,
    clients::{install, pip, run},
    run_bounded,
    server::both,
};

/// One generation, or one run of an example.
const RUN: Duration = Duration::from_secs(3 * 60);
/// Package of the generated code in Go's example.
const GO_PACKAGE: &str = "insula/onboard/admin";
/// Generators of Go's example, as its `go.mod` names them.
const GO_GENERATORS: [(&str, &str); 2] = [
    ("protoc-gen-go", "google.golang.org/protobuf/cmd/protoc-gen-go"),
    ("protoc-gen-go-grpc", "google.golang.org/grpc/cmd/protoc-gen-go-grpc"),
];

/// A language with an example that onboards a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onboarding {
    /// `grpcio` and its generator.
    Python,
    /// grpc-go and its generators.
    Go,
}

impl Onboarding {
    /// Runs the example against a server, and returns its output. Prints the reason and returns
    /// nothing where the language or its packages cannot be had.
    pub fn run(self, server: &Server, definition: &Path, tenant: &str) -> Option<String> {
        let work = tempfile::TempDir::new().unwrap();
        let prepared = match self {
            Self::Python => python(work.path()),
            Self::Go => go(work.path()),
        };
        let mut command = match prepared {
            Ok(command) => command,
            Err(missing) => {
                eprintln!("skipped: {missing}");
                return None;
            }
        };
        command.arg(server.address()).arg(server.data_dir().join("pki"));
        command.arg(definition).arg(tenant).current_dir(work.path());
        for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy"] {
            command.env_remove(proxy);
        }
        let output = run_bounded(&mut command, "", RUN);
        assert!(output.status.success(), "{self:?}: {}", both(&output));
        Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn source(language: &str) -> PathBuf {
    repository().join("docs/clients").join(language)
}

/// Returns the files of the admin API, as `insula/admin/v1/api.proto`.
fn protos() -> Vec<String> {
    let descriptors = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).unwrap();
    let names = descriptors.file.iter().map(|file| file.name().to_owned());
    names.filter(|name| name.starts_with("insula/")).collect()
}

/// Returns the steps that the guide prints for Python, after the installation of the packages. An
/// error is a sentence.
fn python(work: &Path) -> Result<Command, String> {
    let packages = install(
        "onboard-python",
        &source("python"),
        &["requirements.txt"],
        false,
        &|into| pip(&source("python").join("requirements.txt"), into),
    )?;
    // The steps find the checkout and the packages in the folder in which they run.
    let entries = fs::read_dir(&packages).map_err(|error| error.to_string())?;
    let entries = entries.map_while(Result::ok).map(|entry| entry.path());
    for path in entries.chain(["proto", "docs"].map(|name| repository().join(name))) {
        let name = path.file_name().unwrap_or_default();
        symlink(fs::canonicalize(&path).unwrap(), work.join(name)).map_err(|error| error.to_string())?;
    }
    let guide = fs::read_to_string(repository().join("docs/guides/grpc-clients.md")).unwrap();
    let (_, section) = guide.split_once("## Python\n\n```text\n").unwrap();
    let (steps, _) = section.split_once("```").unwrap();
    let (installation, steps) = steps.split_once('\n').unwrap();
    assert!(installation.starts_with("pip install"), "{installation}");
    let arguments = "127.0.0.1:6443 .insula/pki lamps.json acme";
    assert!(steps.contains(arguments), "{steps}");
    let steps = steps.replace(arguments, "\"$@\"");
    // Some machines have no `python`.
    let script = format!("python() {{ python3 \"$@\"; }}\n{steps}");
    let mut command = Command::new("bash");
    command.args(["-e", "-c", &script, "python"]);
    Ok(command)
}

/// Generates Go's messages and clients, and builds the example. An error is a sentence.
fn go(work: &Path) -> Result<Command, String> {
    let source = source("go");
    for file in ["go.mod", "go.sum", "main.go"] {
        fs::copy(source.join(file), work.join(file)).map_err(|error| format!("{file}: {error}"))?;
    }
    // Go caches builds by content: a repetition takes a second or two.
    let tools = install("onboard-go", &source, &["go.mod", "go.sum"], false, &|into| {
        let packages = GO_GENERATORS.map(|(_, package)| OsString::from(package));
        let mut folder = into.as_os_str().to_owned();
        folder.push("/");
        run("go", &["build", "-o"], &[&[folder], &packages[..]].concat(), &source)
    })?;
    for (program, _) in GO_GENERATORS {
        generate(&tools.join(program), work);
    }
    let program = work.join("onboard");
    run(
        "go",
        &["build", "-o"],
        &[program.clone().into_os_string(), ".".into()],
        work,
    )?;
    Ok(Command::new(program))
}

/// Runs a generator of protoc, and writes its files.
fn generate(program: &Path, work: &Path) {
    let descriptors = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).unwrap();
    let files = protos();
    let mut parameter = "module=insula/onboard".to_owned();
    for file in &files {
        parameter += &format!(",M{file}={GO_PACKAGE}");
    }
    let request = CodeGeneratorRequest {
        file_to_generate: files,
        parameter: Some(parameter),
        proto_file: descriptors.file,
        compiler_version: None,
    };
    let (input, answer) = (work.join("request"), work.join("answer"));
    fs::write(&input, request.encode_to_vec()).unwrap();
    let status = Command::new(program)
        .stdin(fs::File::open(&input).unwrap())
        .stdout(fs::File::create(&answer).unwrap())
        .status()
        .unwrap();
    assert!(status.success(), "{}: {status}", program.display());
    let response = CodeGeneratorResponse::decode(&*fs::read(&answer).unwrap()).unwrap();
    assert_eq!(response.error, None, "{}", program.display());
    for file in response.file {
        let path = work.join(file.name());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file.content()).unwrap();
    }
}
