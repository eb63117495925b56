//! Recorded answers of a real kcp, replayed against this server by the recorder's own program.
//!
//! The floors are the numbers of equal steps reached so far; they only go down for a difference
//! that is wanted and listed here. These differences of definitions and verbs remain:
//!
//! - `crd-lifecycle`: fields that the server's own controllers write have no owner.
//! - `crd-openapi-v3`: descriptions are in our own words; parameters and fields of alpha features
//!   that are not served are not published; a redirect stays in its workspace, where the recorded
//!   one leaves it.
//! - `builtin-openapi`: whole objects are written as JSON, and OpenAPI v3 too, which every client
//!   takes; the paths of tokens are not published.
//! - `builtin-discovery`: workspaces have APIServices and flow control, which kcp's have not.
//! - `builtin-rbac-validation`: the rules that an aggregated role gathers have no owner.
//! - `builtin-strategic-patch`: the refusal of a patch shows the resulting object, and not a map of
//!   Go's.
//! - `kcp-export-lifecycle`, `kcp-binding-lifecycle`, `kcp-apiconversion`: tables have columns for
//!   the conditions of conversion and of readiness, which kcp does not have.
//! - `kcp-apiconversion`: rules have a status here. `kcp-export-versions`: fields that v1alpha1
//!   lacks are kept beside the object, so a write through v1alpha1 is not refused for their
//!   absence. `kcp-binding-validation`: a reference without a name is 422 with its causes, by the
//!   schema that requires it, before the authorization of the binding. `kcp-binding-unresolved`:
//!   who may list the exports of a workspace is told which there are, where kcp says that the
//!   permission to bind is missing, or nothing.
//! - `kcp-binding-rebind`: a field that a release takes from the stored version still shows in the
//!   version that has it. kcp shows it in none. And an export loses no version that a workspace has
//!   used a moment ago, unless that is confirmed.
//! - `kcp-routing`: a path without a workspace is 404 only for callers who may know the existing
//!   workspaces. The recorded server answers 404 to everybody; kcp's front proxy, to nobody.
//! - `verbs-generation-status`: fields at the root of an object keep their owner when its status is
//!   written.

use std::{path::Path, process::Command, time::Duration};

use insula_e2e::{Server, run_bounded};

/// Scenarios by name, and the number of their steps with equal answers.
const FLOORS: &[(&str, usize)] = &[
    ("^apply-", 318),
    ("^crd-", 296),
    ("^verbs-", 367),
    ("^listwatch-", 359),
    ("^schema-", 341),
    ("^builtin-", 342),
    ("^kcp-access", 26),
    ("^kcp-workspaces", 22),
    ("^kcp-schema", 43),
    ("^kcp-export", 36),
    ("^kcp-binding", 98),
    ("^kcp-routing", 23),
    ("^kcp-topology", 15),
    ("^kcp-logicalcluster", 17),
    ("^kcp-apiconversion", 11),
    ("^kcp-bound-serving", 22),
    ("^kcp-endpoint", 19),
    ("^kcp-permission-claims", 20),
    ("^kcp-virtual-workspace", 28),
    ("^kcp-workspacetypes", 20),
    ("^kcp-workspace-validation", 16),
];

#[test]
fn golden_answers_are_served() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
    let yaml = Command::new("python3").args(["-c", "import yaml"]).output();
    if !folder.join("golden.py").exists() || !yaml.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no golden recordings");
        return;
    }
    let server = Server::start();
    let mut fallen = Vec::new();
    for (only, floor) in FLOORS {
        let mut command = Command::new("python3");
        command
            .arg(folder.join("golden.py"))
            .args(["check", "--context", "base", "--only", only, "--kubeconfig"]);
        let output = run_bounded(command.arg(server.kubeconfig()), "", Duration::from_secs(240));
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let equal = equal_steps(&text);
        eprintln!("{only}: {equal} steps alike, floor {floor}");
        if equal < *floor {
            fallen.push(format!("{only}: {equal} < {floor}\n{text}"));
        }
    }
    assert!(fallen.is_empty(), "{}", fallen.join("\n"));
}

/// Reads the last line, `N passed, M failed`.
fn equal_steps(text: &str) -> usize {
    let counts = text.lines().rev().find_map(|line| line.split_once(" passed, "));
    counts
        .and_then(|(passed, _)| passed.trim().parse().ok())
        .unwrap_or_default()
}
