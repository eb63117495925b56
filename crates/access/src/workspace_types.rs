//! Workspace types: resolution of names, types that they extend, and limits on parents and
//! children.

use crate::rules;
use insula_api::{ClusterName, ClusterPath, Json, ObjectKey};
use insula_auth::PolicyRule;
use insula_catalog::{ids, locate};
use insula_store::Pinned;
use std::{collections::BTreeSet, sync::Arc};

/// Types that a type extends, counted through; a circle ends here too.
pub const EXTENDS_MAX: usize = 32;

/// `spec.type` of a workspace or an entry of `extend.with`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeReference {
    /// Path of the workspace that the type is in; empty for not said.
    pub path: String,
    /// Its name.
    pub name: String,
}

impl TypeReference {
    /// Reads `{path, name}`.
    pub fn read(value: &Json) -> Option<Self> {
        let name = value["name"].as_str().filter(|name| !name.is_empty())?;
        Some(TypeReference {
            path: value["path"].as_str().unwrap_or_default().to_owned(),
            name: name.to_owned(),
        })
    }

    /// Reads `<path>:<name>`, as the annotation on LogicalClusters has it.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, name) = text.rsplit_once(':')?;
        Some(TypeReference {
            path: path.to_owned(),
            name: name.to_owned(),
        })
    }

    /// As JSON.
    pub fn write(&self) -> Json {
        serde_json::json!({"path": self.path, "name": self.name})
    }
}

impl std::fmt::Display for TypeReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.path, self.name)
    }
}

/// Limit on the types of parents or children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// Everybody.
    Any,
    /// Nobody.
    None,
    /// These, and what extends them.
    Types(Vec<TypeReference>),
}

impl Limit {
    fn read(value: &Json) -> Self {
        if value["none"] == true {
            return Limit::None;
        }
        match value["types"].as_array().filter(|types| !types.is_empty()) {
            Some(types) => Limit::Types(types.iter().filter_map(TypeReference::read).collect()),
            None => Limit::Any,
        }
    }
}

/// A parsed WorkspaceType.
#[derive(Debug)]
pub struct TypeView {
    /// A controller has to finish each workspace of the type.
    pub initializer: bool,
    /// A controller has to clear each workspace of the type before it goes.
    pub terminator: bool,
    /// Rules of the initializer in the workspace; if empty, it acts as the owner.
    pub initializer_rules: Vec<PolicyRule>,
    /// The same of the terminator.
    pub terminator_rules: Vec<PolicyRule>,
    /// Default bindings are kept as the type says (`Maintain`), not just made once.
    pub maintains: bool,
    /// Types that it extends.
    pub extends: Vec<TypeReference>,
    /// `(path, export)` of APIs that are bound in each workspace of the type.
    pub default_bindings: Vec<(String, String)>,
    /// Limit on parents of its workspaces.
    pub parents: Limit,
    /// Limit on children of its workspaces.
    pub children: Limit,
    /// Type of children that name none.
    pub default_child: Option<TypeReference>,
    /// WorkspaceAuthenticationConfigurations beside it, whose issuers vouch for users of its
    /// workspaces.
    pub authentication: Vec<String>,
    /// Labels of its workspaces.
    pub labels: Vec<(String, String)>,
}

impl TypeView {
    /// Reads a WorkspaceType.
    pub fn read(object: &Json) -> Self {
        let spec = &object["spec"];
        let strings = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let items = |value: &Json| value.as_array().cloned().unwrap_or_default();
        TypeView {
            initializer: spec["initializer"] == true,
            terminator: spec["terminator"] == true,
            initializer_rules: rules::read_rules(&spec["initializerPermissions"]),
            terminator_rules: rules::read_rules(&spec["terminatorPermissions"]),
            maintains: maintains(object),
            extends: items(&spec["extend"]["with"])
                .iter()
                .filter_map(TypeReference::read)
                .collect(),
            default_bindings: items(&spec["defaultAPIBindings"])
                .iter()
                .map(|binding| (strings(&binding["path"]), strings(&binding["export"])))
                .collect(),
            parents: Limit::read(&spec["limitAllowedParents"]),
            children: Limit::read(&spec["limitAllowedChildren"]),
            default_child: TypeReference::read(&spec["defaultChildWorkspaceType"]),
            authentication: items(&spec["authenticationConfigurations"])
                .iter()
                .map(|configuration| strings(&configuration["name"]))
                .collect(),
            labels: spec["additionalWorkspaceLabels"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), strings(value)))
                .collect(),
        }
    }
}

/// `defaultAPIBindingLifecycle`, or the annotation that it was before.
fn maintains(object: &Json) -> bool {
    let field = &object["spec"]["defaultAPIBindingLifecycle"];
    let annotation = &object["metadata"]["annotations"]["experimental.tenancy.kcp.io/default-api-binding-lifecycle"];
    let said = if field.is_null() { annotation } else { field };
    said == "Maintain"
}

/// A type that was found.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The cluster that it is in.
    pub cluster: ClusterName,
    /// Its canonical path and name.
    pub reference: TypeReference,
    /// The parsed type.
    pub view: Arc<TypeView>,
}

impl Resolved {
    /// The name of its initializer and terminator.
    pub fn controller(&self) -> String {
        format!("{}:{}", self.cluster, self.reference.name)
    }
}

/// The type of a name in one cluster.
pub fn get(snapshot: &Pinned, cluster: &ClusterName, name: &str) -> Option<Resolved> {
    let key = ObjectKey::cluster_scoped(ids::workspacetypes(), cluster.clone(), name);
    let entry = snapshot.get(&key)?;
    let view = entry.object.parsed(|object| TypeView::read(&object.body_value()));
    let reference = TypeReference {
        path: locate::path_of(snapshot, cluster).to_string(),
        name: name.to_owned(),
    };
    Some(Resolved {
        cluster: cluster.clone(),
        reference,
        view,
    })
}

/// The type that a reference with a path means.
pub fn resolve(snapshot: &Pinned, reference: &TypeReference) -> Option<Resolved> {
    let path = ClusterPath::parse(&reference.path).ok()?;
    let cluster = locate::locate(snapshot, &path).ok()?;
    get(snapshot, &cluster, &reference.name)
}

/// The type that a name without a path means in a workspace: its own, its parents', root's.
pub fn upwards(snapshot: &Pinned, cluster: &ClusterName, name: &str) -> Option<Resolved> {
    let mut path = Some(locate::path_of(snapshot, cluster));
    while let Some(here) = path {
        if let Ok(cluster) = locate::locate(snapshot, &here)
            && let Some(found) = get(snapshot, &cluster, name)
        {
            return Some(found);
        }
        path = here.parent();
    }
    get(snapshot, &ClusterName::root(), name)
}

/// A type and all that it extends, itself first, each once.
pub fn closure(snapshot: &Pinned, start: Resolved) -> Vec<Resolved> {
    let mut visited = vec![start.reference.clone()];
    let mut found = Vec::new();
    descend(snapshot, start, &mut visited, &mut found);
    found.reverse();
    found
}

/// Appends a type behind all that it extends, in the order of its list.
fn descend(snapshot: &Pinned, here: Resolved, visited: &mut Vec<TypeReference>, found: &mut Vec<Resolved>) {
    for reference in &here.view.extends {
        if visited.len() >= EXTENDS_MAX {
            break;
        }
        if let Some(base) = resolve(snapshot, reference)
            && !visited.contains(&base.reference)
        {
            visited.push(base.reference.clone());
            descend(snapshot, base, visited, found);
        }
    }
    found.push(here);
}

/// All that a type extends, what is extended before what extends it, itself last; or why there is
/// no such order.
pub fn lineage(snapshot: &Pinned, start: Resolved) -> Result<Vec<Resolved>, String> {
    let (mut found, mut way) = (Vec::new(), Vec::new());
    climb(snapshot, start, &mut way, &mut found)?;
    Ok(found)
}

fn climb(
    snapshot: &Pinned,
    here: Resolved,
    way: &mut Vec<TypeReference>,
    found: &mut Vec<Resolved>,
) -> Result<(), String> {
    way.push(here.reference.clone());
    for wanted in &here.view.extends {
        if let Some(start) = way.iter().position(|known| known == wanted) {
            let circle: Vec<String> = way[start..].iter().map(TypeReference::to_string).collect();
            let circle = circle.join(" -> ");
            return Err(format!(
                "circular dependency detected in workspace type {wanted}: {circle}"
            ));
        }
        if found.iter().any(|known| known.reference == *wanted) {
            continue;
        }
        let missing = || format!("unable to find inherited workspace type {wanted}");
        let base = resolve(snapshot, wanted).ok_or_else(missing)?;
        if way.len() + found.len() >= EXTENDS_MAX {
            return Err(format!(
                "workspace type {} extends more than {EXTENDS_MAX} types",
                way[0]
            ));
        }
        climb(snapshot, base, way, found)?;
    }
    way.pop();
    found.push(here);
    Ok(())
}

/// The type of a logical cluster, as it is annotated.
pub fn of_cluster(snapshot: &Pinned, cluster: &ClusterName) -> Option<Resolved> {
    let view = locate::logical_cluster(snapshot, cluster)?;
    resolve(snapshot, &TypeReference::parse(&view.workspace_type)?)
}

/// APIs that every workspace has without a binding: default bindings to them mean nothing here.
pub fn is_built_in(path: &str, export: &str) -> bool {
    path == "root" && matches!(export, "tenancy.kcp.io" | "topology.kcp.io")
}

/// `[a:b c:d]`, in order.
pub fn list_names<'a>(references: impl IntoIterator<Item = &'a TypeReference>) -> String {
    let words: BTreeSet<String> = references.into_iter().map(TypeReference::to_string).collect();
    format!("[{}]", words.into_iter().collect::<Vec<_>>().join(" "))
}
