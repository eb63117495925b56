//! `insula boot`: projects that it generates compile, pass their tests, and serve.

mod in_workspace;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use insula_e2e::{Checkout, Kubectl, Server, Setup, insula, run_bounded, until};
use serde_json::Value;

/// Longest time of a command that builds, beside other builds.
const BUILD_PATIENCE: Duration = Duration::from_secs(600);

/// A project in a checkout.
struct Project(Checkout);

impl Project {
    /// Begins a project. Its name differs from those of other tests, which build beside it.
    fn begin(name: &str) -> Self {
        let project = Self(Checkout::new());
        project.boot(&["init", "repo", "--domain", "example.com", "--name", name]);
        project
    }

    fn ran(&self, mut command: Command) -> (bool, String) {
        self.0.environment(&mut command);
        command.current_dir(self.0.project());
        let Output { status, stdout, stderr } = run_bounded(&mut command, "", BUILD_PATIENCE);
        let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (status.success(), text.concat())
    }

    /// Runs `insula boot` with success.
    #[track_caller]
    fn boot(&self, arguments: &[&str]) -> String {
        let (done, text) = self.ran(insula(&[&["boot"], arguments].concat()));
        assert!(done, "insula boot {}: {text}", arguments.join(" "));
        text
    }

    /// Runs `insula boot` and checks that it refuses, with these words.
    #[track_caller]
    fn refuses(&self, arguments: &[&str], words: &str) {
        let (done, text) = self.ran(insula(&[&["boot"], arguments].concat()));
        assert!(
            !done && text.contains(words),
            "insula boot {}: {text}",
            arguments.join(" ")
        );
    }

    fn create(&self, kind: &str, version: &str, more: &[&str]) -> String {
        let arguments = [
            "create",
            "group",
            "version",
            "resource",
            "--group",
            "ships",
            "--version",
            version,
        ];
        self.boot(&[&arguments, &["--kind", kind][..], more].concat())
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.project().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }
}

#[test]
fn names_are_checked_and_nothing_is_overwritten() {
    let project = Project::begin("checked");
    let again = ["init", "repo", "--domain", "example.com", "--name", "again"];
    project.refuses(&again, "is the project checked already");
    let create = ["create", "group", "version", "resource"];
    for (flags, words) in [
        (
            ["--group=Ships", "--version=v1", "--kind=Boat"],
            "must not have capital letters",
        ),
        (
            ["--group=ships", "--version=one", "--kind=Boat"],
            "alpha, beta or stable",
        ),
        (
            ["--group=ships", "--version=v1", "--kind=boat"],
            "must be in UpperCamel case; write \"Boat\"",
        ),
    ] {
        project.refuses(&[&create[..], &flags].concat(), words);
    }
    assert!(!project.read("insula-boot.yaml").contains("ships"));
    project.create("Boat", "v1", &["--no-controller"]);
    project.refuses(
        &[&create[..], &["--group=ships", "--version=v1", "--kind=Boat"]].concat(),
        "has the version v1 already",
    );
    let sub = [
        "create",
        "subresource",
        "--group=ships",
        "--kind=Boat",
        "--subresource=dock",
    ];
    project.boot(&sub);
    project.refuses(&sub, "has the subresource dock already");
    let file = project.0.project().join("src/lib.rs");
    fs::write(&file, project.read("src/lib.rs").replace("// +boot:server", "")).unwrap();
    let controller = ["create", "controller", "--group=ships", "--kind=Boat"];
    project.refuses(&controller, "src/lib.rs has no line that ends with `// +boot:server`");
    assert!(!project.0.project().join("src/controllers/ships_boat.rs").exists());
}

#[test]
fn a_generated_project_is_tested_built_and_served() {
    let project = Project::begin("harbour");
    project.create("Boat", "v1", &[]);
    project.boot(&[
        "create",
        "subresource",
        "--group=ships",
        "--kind=Boat",
        "--subresource=dock",
    ]);
    project.create("Boat", "v2alpha1", &[]);
    project.create("Fairway", "v1beta1", &["--cluster-scoped", "--no-controller"]);
    project.boot(&["create", "controller", "--group=ships", "--kind=Fairway"]);

    // All packages, so that they have the features that they were built with.
    let mut tests = Command::new("cargo");
    tests.args(["test", "--workspace", "--test", "api"]);
    let (done, text) = project.ran(tests);
    assert!(done, "{text}");
    assert!(text.contains("7 passed"), "{text}");
    let mut formatted = Command::new("rustfmt");
    formatted.args([
        "--check",
        "--edition",
        "2024",
        "src/lib.rs",
        "src/main.rs",
        "tests/api/main.rs",
    ]);
    let (done, text) = project.ran(formatted);
    assert!(done, "{text}");

    let text = project.boot(&["build", "executables"]);
    let program = text
        .lines()
        .find_map(|line| line.strip_prefix("built "))
        .unwrap()
        .to_owned();
    manifests(&project);
    drive(&project, Path::new(&program));
    in_workspace::offers_and_withdraws(&project);
}

/// Builds everything that is text.
fn manifests(project: &Project) {
    project.boot(&["build", "docs"]);
    let page = project.read("docs/boats.ships.example.com.md");
    assert!(
        page.contains("| `.spec.message` | string | A text for people"),
        "{page}"
    );

    let config = ["build", "config", "--image", "registry.example.com/harbour:0.1"];
    project.boot(&config);
    let services = project.read("config/apiservice.yaml");
    for name in [
        "v1.ships.example.com",
        "v1beta1.ships.example.com",
        "v2alpha1.ships.example.com",
    ] {
        assert!(services.contains(&format!("name: {name}\n")), "{services}");
    }
    project.boot(&config);
    let changed = project.0.project().join("config/service.yaml");
    fs::write(&changed, "kind: Service\n").unwrap();
    project.refuses(&config, "--overwrite replaces it");
    project.boot(&[&config[..], &["--overwrite"]].concat());

    project.boot(&[
        "build",
        "container",
        "--image",
        "registry.example.com/harbour:0.1",
        "--no-build",
    ]);
    dockerfile(&project.read("Dockerfile"));
}

/// Checks that docker, podman and kaniko take the file, that the image is empty but for the
/// program, and that its user is not root.
fn dockerfile(text: &str) {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let instructions: Vec<(&str, &str)> = lines.map(|line| line.split_once(' ').unwrap()).collect();
    let known = [
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "RUN",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
    ];
    for (word, rest) in &instructions {
        assert!(known.contains(word), "{word} {rest}");
        assert!(
            !rest.contains("--mount") && !rest.contains("<<") && !rest.contains("--chmod"),
            "{word} {rest}"
        );
    }
    let last = |word: &str| {
        instructions
            .iter()
            .rfind(|(own, _)| *own == word)
            .map(|(_, rest)| *rest)
    };
    assert_eq!(last("FROM"), Some("scratch"));
    assert_eq!(last("USER"), Some("65532:65532"));
    assert_eq!(last("ENTRYPOINT"), Some("[\"/harbour\"]"));
    assert!(instructions.contains(&("COPY", "harbour /harbour")));
}

/// Serves, and uses every part with kubectl.
fn drive(project: &Project, program: &Path) {
    let setup = Setup {
        program: Some(program.to_owned()),
        ..Setup::default()
    };
    let server = Server::with(setup);
    let Some(kubectl) = Kubectl::for_server(&server) else {
        return;
    };
    let run = |arguments: &[&str], stdin: &str| {
        let ran = kubectl.run("root", arguments, stdin);
        assert_eq!(ran.code, 0, "kubectl {}: {}", arguments.join(" "), ran.text);
        ran.text
    };
    run(&["apply", "-f", "-"], &project.read("samples/ships_v1_boat.yaml"));
    run(
        &["apply", "--server-side", "-f", "-"],
        &project.read("samples/ships_v1beta1_fairway.yaml"),
    );
    let boat = |version: &str| -> Value {
        let text = run(
            &[
                "get",
                &format!("boats.{version}.ships.example.com"),
                "example",
                "-o",
                "json",
            ],
            "",
        );
        serde_json::from_str(&text).unwrap()
    };
    until("the controller has seen the boat", || {
        (boat("v1")["status"]["observedGeneration"] == 1).then_some(())
    });
    assert_eq!(boat("v2alpha1")["apiVersion"], "ships.example.com/v2alpha1");
    assert!(run(&["get", "configmap", "example-boat", "-o", "yaml"], "").contains("message: hello"));
    assert!(run(&["explain", "boat.spec.message"], "").contains("A text for people"));
    let path = "/clusters/root/apis/ships.example.com/v1/namespaces/default/boats/example/dock";
    // kubectl 1.35 appends the path to that of the server's URL.
    let answer = run(
        &["create", "--raw", path, "-f", "-", "--server", server.url()],
        "{\"reason\": \"repairs\"}",
    );
    assert!(answer.contains("dock was asked for: repairs"), "{answer}");
    run(&["delete", "boat", "example"], "");
    until("its ConfigMap is deleted with it", || {
        let ran = kubectl.run("root", &["get", "configmap", "example-boat"], "");
        ran.text.contains("NotFound").then_some(())
    });
}
