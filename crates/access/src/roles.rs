//! The facts about a logical cluster that an access decision uses. Above all the rules that a user
//! holds there: bindings and roles as they are in one snapshot. Those of
//! `config/bootstrap/roles.yaml` are in every cluster, and so are the ClusterRoles and
//! ClusterRoleBindings that the platform stores in `system:admin`. The rules of bound APIs
//! aggregate into `view`, `edit` and `admin`.
//!
//! Nothing is kept for a cluster or a user: what a role or binding says is kept with its object, so
//! that a change is effective with the very revision that makes it.

pub mod holders;

use crate::{aggregated, lifecycle, rules};
use insula_api::{ClusterName, Json, Object, ObjectKey, Scope, kinds::WorkspacePhase};
use insula_auth::{ClusterFacts, Identities, PolicyRule, Roles, Subject, SubjectKind, UserInfo};
use insula_catalog::{
    exports, ids,
    locate::{self, LogicalClusterView},
};
use insula_store::Snapshot;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    ops::ControlFlow,
    sync::{Arc, LazyLock},
};

const BOOTSTRAP_YAML: &str = include_str!("../../../config/bootstrap/roles.yaml");

/// Returns the facts about a cluster in one state: its owner, required groups, phase and roles.
pub fn facts(snapshot: &Snapshot, cluster: &ClusterName) -> ClusterFacts {
    facts_with(snapshot, cluster, locate::logical_cluster(snapshot, cluster).as_deref())
}

/// Returns the same facts for a cluster whose LogicalCluster has been read from `snapshot` already.
pub fn facts_with(
    snapshot: &Snapshot,
    cluster: &ClusterName,
    logical_cluster: Option<&LogicalClusterView>,
) -> ClusterFacts {
    let owner = logical_cluster.and_then(|view| view.owner.as_deref());
    ClusterFacts {
        cluster: Some(cluster.clone()),
        required_groups: logical_cluster.and_then(|view| view.required_groups.clone()),
        admin_users: owner.map(str::to_owned).into_iter().collect(),
        unfinished: logical_cluster.is_some_and(|view| view.phase == WorkspacePhase::Initializing),
        roles: Some(Arc::new(RolesAt::new(snapshot, cluster))),
        ..ClusterFacts::default()
    }
}

/// A binding as it is used.
#[derive(Debug)]
struct Binding {
    subjects: Vec<Subject>,
    of_namespace: bool,
    role: String,
}

/// Roles and bindings of every cluster.
struct Bootstrap {
    roles: HashMap<String, Arc<Vec<PolicyRule>>>,
    bindings: Vec<Binding>,
    /// The same bindings as documents, by name.
    documents: BTreeMap<String, Json>,
}

static BOOTSTRAP: LazyLock<Bootstrap> = LazyLock::new(|| {
    let documents: Vec<Json> =
        serde_saphyr::from_multiple(BOOTSTRAP_YAML).expect("config/bootstrap/roles.yaml is YAML");
    let of = |kind: &'static str| documents.iter().filter(move |document| document["kind"] == kind);
    let name = |document: &Json| document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Bootstrap {
        roles: of("ClusterRole")
            .map(|role| (name(role), Arc::new(rules::rules(role))))
            .collect(),
        bindings: of("ClusterRoleBinding").map(read_binding).collect(),
        documents: of("ClusterRoleBinding")
            .map(|binding| (name(binding), binding.clone()))
            .collect(),
    }
});

/// Returns the names of the ClusterRoles that every cluster has without storing them, sorted.
pub fn built_in() -> impl Iterator<Item = &'static str> {
    let mut names: Vec<&str> = BOOTSTRAP.roles.keys().map(String::as_str).collect();
    names.sort_unstable();
    names.into_iter()
}

/// Returns the names of the ClusterRoleBindings that every cluster has without storing them, in
/// order.
pub fn built_in_bindings() -> impl Iterator<Item = &'static str> {
    BOOTSTRAP.documents.keys().map(String::as_str)
}

/// Returns a ClusterRoleBinding that every cluster has.
pub fn built_in_binding(name: &str) -> Option<&'static Json> {
    BOOTSTRAP.documents.get(name)
}

fn read_binding(binding: &Json) -> Binding {
    let own = binding["metadata"]["namespace"].as_str().unwrap_or_default();
    let subject = |subject: &Json| {
        let text = |field: &str| subject[field].as_str().unwrap_or_default();
        let kind = match text("kind") {
            "User" => SubjectKind::User,
            "Group" => SubjectKind::Group,
            "ServiceAccount" => SubjectKind::ServiceAccount,
            _ => return None,
        };
        let namespace = Some(text("namespace")).filter(|named| !named.is_empty()).unwrap_or(own);
        let (name, namespace) = (text("name").to_owned(), namespace.to_owned());
        Some(Subject { kind, name, namespace })
    };
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    Binding {
        subjects: subjects.filter_map(subject).collect(),
        of_namespace: binding["roleRef"]["kind"] == "Role",
        role: binding["roleRef"]["name"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Addition of the rules of bound APIs and of labelled roles to a role.
#[derive(Debug, Clone, Copy)]
enum Aggregates {
    Yes,
    No,
}

/// The roles of one cluster in one state.
pub struct RolesAt {
    snapshot: Snapshot,
    cluster: ClusterName,
}

impl fmt::Debug for RolesAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RolesAt({} at {})", self.cluster, self.snapshot.revision())
    }
}

impl RolesAt {
    /// The roles of a cluster in the state of a snapshot.
    pub fn new(snapshot: &Snapshot, cluster: &ClusterName) -> Self {
        RolesAt {
            snapshot: snapshot.clone(),
            cluster: cluster.clone(),
        }
    }

    /// The rules of a role, by what a binding's reference says; nothing where there is no such
    /// role.
    pub fn rules_of(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Vec<PolicyRule>>> {
        let (rules, aggregates) = self.role(namespace, name)?;
        Some(match aggregates {
            Aggregates::Yes => self.with_aggregated(name, rules),
            Aggregates::No => rules,
        })
    }

    /// Returns the rules of a role without those that aggregate into it, and whether some may.
    fn role(&self, namespace: Option<&str>, name: &str) -> Option<(Arc<Vec<PolicyRule>>, Aggregates)> {
        let read = |object: &Object| rules::rules(&object.body_value());
        let cluster = self.cluster.clone();
        let key = match namespace {
            Some(namespace) => ObjectKey {
                namespace: namespace.into(),
                ..ObjectKey::cluster_scoped(ids::roles(), cluster, name)
            },
            None => ObjectKey::cluster_scoped(ids::clusterroles(), cluster, name),
        };
        match self.snapshot.get(&key) {
            Some(role) => Some((role.object.parsed(read), Aggregates::No)),
            None if namespace.is_some() => None,
            None => match self.of_platform() {
                Some(platform) => Some((platform.rules_of(None, name)?, Aggregates::Yes)),
                None => BOOTSTRAP.roles.get(name).cloned().map(|rules| (rules, Aggregates::No)),
            },
        }
    }

    /// Adds to a role of every cluster the rules that aggregate into it in this one.
    fn with_aggregated(&self, name: &str, rules: Arc<Vec<PolicyRule>>) -> Arc<Vec<PolicyRule>> {
        let more = aggregated::rules_of(&self.snapshot, &self.cluster, name);
        match more.is_empty() {
            true => rules,
            false => Arc::new(rules.iter().cloned().chain(more).collect()),
        }
    }

    /// Returns the roles of `system:admin`, which count in every other cluster as well.
    fn of_platform(&self) -> Option<RolesAt> {
        let platform = ClusterName::system_admin();
        (self.cluster != platform).then(|| RolesAt::new(&self.snapshot, &platform))
    }

    /// All rules that the user holds, for the cluster and for a namespace.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Vec<PolicyRule> {
        let mut held = Vec::new();
        let user = &Identities::in_cluster(user, Some(&self.cluster));
        self.find(user, namespace, &mut |rule| {
            held.push(rule.clone());
            false
        });
        held
    }

    fn by(
        &self,
        binding: &Binding,
        namespace: Option<&str>,
        user: &Identities<'_>,
        found: &mut dyn FnMut(&PolicyRule) -> bool,
    ) -> bool {
        let is_meant = |subject: &Subject| user.iter().any(|user| subject.is(user));
        let namespace = namespace.filter(|_| binding.of_namespace);
        binding.subjects.iter().any(is_meant)
            && self
                .role(namespace, &binding.role)
                .is_some_and(|(rules, aggregates)| match aggregates {
                    Aggregates::No => rules.iter().any(found),
                    Aggregates::Yes => {
                        rules.iter().any(&mut *found)
                            || aggregated::any_rule(&self.snapshot, &self.cluster, &binding.role, found)
                    }
                })
    }
}

impl Roles for RolesAt {
    fn find(&self, user: &Identities<'_>, namespace: &str, found: &mut dyn FnMut(&PolicyRule) -> bool) -> bool {
        let mut is_found = BOOTSTRAP
            .bindings
            .iter()
            .any(|binding| self.by(binding, None, user, found))
            || user
                .iter()
                .flat_map(|user| lifecycle::rules(&self.snapshot, &self.cluster, user))
                .any(|rule| found(&rule));
        let mut look = |roles: &RolesAt, scope: Scope, namespace: Option<&str>| {
            if is_found {
                return;
            }
            self.snapshot.for_each(&scope, |entry| {
                let binding = entry.object.parsed(|object| read_binding(&object.body_value()));
                is_found = roles.by(&binding, namespace, user, found);
                match is_found {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
        };
        // A binding of the platform refers to a role of the platform, whatever roles the cluster
        // has.
        for roles in [Some(self), self.of_platform().as_ref()].into_iter().flatten() {
            let scope = Scope::cluster(ids::clusterrolebindings(), roles.cluster.clone());
            look(roles, scope, None);
        }
        if !namespace.is_empty() {
            let scope = Scope::namespace(ids::rolebindings(), self.cluster.clone(), namespace);
            look(self, scope, Some(namespace));
        }
        is_found
    }

    fn ceiling(&self, group: &str, resource: &str) -> Option<Arc<dyn Roles>> {
        let exporter = exports::policy_of(&self.snapshot, &self.cluster, group, resource)?;
        Some(Arc::new(RolesAt::new(&self.snapshot, &exporter)))
    }
}
