//! `insula boot build config`: the manifests that run a project's server in a cluster, and offer
//! its APIs there through aggregation.

use std::{fmt::Write, fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;

use super::{
    here, make, names,
    plan::{Plan, fill},
    project::Project,
};
use crate::print;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Image of the server.
    #[arg(long)]
    image: String,
    /// Namespace of the server.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Store: etcd://HOST:PORT[,…] for several replicas [default: a volume, for one replica].
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Certificates that sign the server's one [default: cert-manager fills them in].
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Folder of the manifests, below the project.
    #[arg(long, value_name = "FOLDER", default_value = "config")]
    output: String,
    /// Replace manifests that were changed.
    #[arg(long)]
    overwrite: bool,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (root, project) = here()?;
    ensure!(
        !project.kinds.is_empty(),
        "the project has no kinds: add one with `insula boot create group version resource`"
    );
    let ca = match &arguments.ca_file {
        Some(file) => {
            let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            Some(STANDARD.encode(bytes))
        }
        None => None,
    };
    let mut plan = Plan::default();
    for (file, text) in manifests(&project, arguments, ca.as_deref()) {
        plan.build(format!("{}/{file}", arguments.output), text, arguments.overwrite);
    }
    let code = make(plan, &root)?;
    print::raw(&format!("next: kubectl apply -f {}\n", arguments.output))?;
    Ok(code)
}

/// Returns the manifests by their files.
fn manifests(project: &Project, arguments: &Arguments, ca: Option<&str>) -> Vec<(&'static str, String)> {
    let store = arguments.store.as_deref();
    let values = [
        ("name", project.name.as_str()),
        ("namespace", &arguments.namespace),
        ("image", &arguments.image),
        ("replicas", if store.is_some() { "2" } else { "1" }),
        ("store", store.unwrap_or("embedded")),
    ];
    let mut deployment = fill(include_str!("templates/deployment.yaml.tmpl"), &values);
    if store.is_none() {
        deployment += &fill(include_str!("templates/volume.yaml.tmpl"), &values);
    } else {
        deployment = deployment.replace(
            &format!("persistentVolumeClaim: {{claimName: {}}}", project.name),
            "emptyDir: {}",
        );
    }
    vec![
        ("apiservice.yaml", api_services(project, arguments, ca)),
        ("deployment.yaml", deployment),
        ("rbac.yaml", rbac(project, &values)),
        (
            "service.yaml",
            fill(include_str!("templates/service.yaml.tmpl"), &values),
        ),
    ]
}

/// Returns an APIService for each version of each group; the most stable version comes first.
fn api_services(project: &Project, arguments: &Arguments, ca: Option<&str>) -> String {
    let mut text = String::from("# The group versions that the cluster proxies to the server.\n");
    for (group, version, priority) in group_versions(project) {
        let full = project.full_group(&group);
        let (name, namespace) = (&project.name, &arguments.namespace);
        let trust = match ca {
            Some(ca) => format!("  caBundle: {ca}\n"),
            None => String::new(),
        };
        let annotations = match ca {
            Some(_) => String::new(),
            None => format!("  annotations: {{cert-manager.io/inject-ca-from: {namespace}/{name}}}\n"),
        };
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "---\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata:\n  name: {version}.{full}\n\
             {annotations}spec:\n  group: {full}\n  version: {version}\n  groupPriorityMinimum: 1000\n  \
             versionPriority: {priority}\n{trust}  service: {{namespace: {namespace}, name: {name}, port: 443}}\n"
        );
    }
    text
}

/// Returns the versions of each group with their priorities.
pub(super) fn group_versions(project: &Project) -> Vec<(String, String, usize)> {
    let mut groups: Vec<&str> = project.kinds.iter().map(|kind| kind.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    let mut found = Vec::new();
    for group in groups {
        let of_group = project.kinds.iter().filter(|kind| kind.group == group);
        let mut versions: Vec<&String> = of_group.flat_map(|kind| &kind.versions).collect();
        versions.sort_by_key(|version| names::stability(version));
        versions.dedup();
        let ranked = versions.into_iter().enumerate().rev();
        found.extend(ranked.map(|(place, version)| (group.to_owned(), version.clone(), 10 * (place + 1))));
    }
    found
}

/// Returns the account of the server, and roles for the kinds.
fn rbac(project: &Project, values: &[(&str, &str)]) -> String {
    let mut text = fill(include_str!("templates/account.yaml.tmpl"), values);
    for (role, verbs) in [
        ("view", "[get, list, watch]"),
        ("edit", "[create, update, patch, delete, deletecollection]"),
    ] {
        let name = &project.name;
        let _ = write!(
            text,
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}-{role}\n  \
             labels: {{rbac.authorization.k8s.io/aggregate-to-{role}: \"true\"}}\nrules:\n"
        );
        for kind in &project.kinds {
            let subresources = kind.subresources.iter().filter(|_| role == "edit");
            let below = subresources.map(|sub| format!(", {}/{sub}", kind.plural));
            let resources = format!("{}{}", kind.plural, below.collect::<String>());
            let group = project.full_group(&kind.group);
            let _ = writeln!(
                text,
                "- {{apiGroups: [{group}], resources: [{resources}], verbs: {verbs}}}"
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::project::Kind;
    use super::*;

    fn project() -> Project {
        let kind = |kind: &str, versions: &[&str]| Kind {
            group: "fleet".into(),
            kind: kind.into(),
            plural: names::plural_of(kind),
            cluster_scoped: false,
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            controller: true,
            subresources: vec!["restart".into()],
        };
        Project {
            name: "fleet".into(),
            domain: "example.com".into(),
            kinds: vec![kind("Foo", &["v1alpha1", "v1"]), kind("Bar", &["v1beta1", "v1"])],
        }
    }

    fn arguments() -> Arguments {
        Arguments {
            image: "registry.example.com/fleet:0.1".into(),
            namespace: "apis".into(),
            store: None,
            ca_file: None,
            output: "config".into(),
            overwrite: false,
        }
    }

    #[test]
    fn the_most_stable_version_of_a_group_comes_first() {
        let found = group_versions(&project());
        let shown: Vec<String> = found
            .iter()
            .map(|(_, version, place)| format!("{version} {place}"))
            .collect();
        assert_eq!(shown, ["v1 30", "v1beta1 20", "v1alpha1 10"]);
    }

    #[test]
    fn manifests_are_objects_that_fit_together() {
        for store in [None, Some("etcd://etcd:2379".to_owned())] {
            let arguments = Arguments { store, ..arguments() };
            let has_store = arguments.store.is_some();
            let mut kinds = Vec::new();
            for (file, text) in manifests(&project(), &arguments, None) {
                let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).expect(file);
                kinds.extend(
                    documents
                        .iter()
                        .map(|one| one["kind"].as_str().unwrap_or_default().to_owned()),
                );
                if file == "deployment.yaml" {
                    let pod = &documents[0]["spec"]["template"]["spec"];
                    assert_eq!(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
                    assert_eq!(pod["volumes"][0]["emptyDir"].is_object(), has_store, "{text}");
                    let delegate = serde_json::json!({"name": "INSULA_DELEGATE", "value": "in-cluster"});
                    let variables = pod["containers"][0]["env"].as_array();
                    assert!(variables.is_some_and(|all| all.contains(&delegate)), "{text}");
                }
                if file == "service.yaml" {
                    assert_eq!(documents[0]["spec"]["ports"][0]["port"], 443);
                }
            }
            kinds.sort();
            kinds.dedup();
            let volume = (!has_store).then_some("PersistentVolumeClaim");
            let all = ["APIService", "ClusterRole", "ClusterRoleBinding", "Deployment"];
            let all = all.into_iter().chain(volume).chain(["RoleBinding"]);
            assert_eq!(kinds, all.chain(["Service", "ServiceAccount"]).collect::<Vec<_>>());
        }
    }
}
