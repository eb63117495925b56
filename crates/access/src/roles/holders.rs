//! Holders of rights in a workspace: the subjects of its bindings, with the roles that they have by
//! them. Answers who has which role, and who may do what by which binding.

use super::{BOOTSTRAP, Binding, RolesAt, read_binding};
use insula_api::{ClusterName, Scope, names::labels};
use insula_auth::{Attributes, GROUP_UNAUTHENTICATED, PolicyRule, Subject, SubjectKind, USER_ANONYMOUS, UserInfo};
use insula_catalog::{ids, locate};
use insula_store::Snapshot;
use std::{ops::ControlFlow, sync::Arc};

/// Origin of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user who created the workspace, and needs no binding.
    Owner,
    /// Every workspace has it.
    Bootstrap,
    /// The platform stores it in `system:admin`.
    Platform,
    /// The workspace stores it.
    Workspace,
}

/// A subject with a role by a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The subject.
    pub subject: Subject,
    /// Name of the role.
    pub role: String,
    /// True if the role is a Role of the binding's namespace.
    pub role_is_namespaced: bool,
    /// Name of the binding; empty for the owner.
    pub binding: String,
    /// Namespace of a RoleBinding; empty otherwise.
    pub namespace: String,
    /// Origin of the binding.
    pub origin: Origin,
    /// Value of the label [`labels::ACCESS`] of the binding.
    pub level: Option<String>,
}

/// RoleBindings to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces<'a> {
    /// None: roles that count in the whole workspace.
    None,
    /// Those of one namespace.
    One(&'a str),
    /// Those of all namespaces.
    All,
}

/// Bindings to look at.
#[derive(Debug, Clone, Copy)]
pub struct Bindings<'a> {
    /// RoleBindings.
    pub namespaces: Namespaces<'a>,
    /// True includes the bindings of the platform, which are for its administrators to know.
    pub platform: bool,
    /// True includes the bindings of every workspace.
    pub bootstrap: bool,
}

/// Returns all holders of roles in a cluster: the owner, then those of bindings by name.
pub fn holders(snapshot: &Snapshot, cluster: &ClusterName, which: Bindings<'_>) -> Vec<Holder> {
    let mut found = Vec::new();
    if let Some(owner) = locate::logical_cluster(snapshot, cluster).and_then(|view| view.owner.clone()) {
        let subject = Subject {
            kind: SubjectKind::User,
            name: owner.to_string(),
            namespace: String::new(),
        };
        found.push(Holder {
            subject,
            role: "cluster-admin".to_owned(),
            role_is_namespaced: false,
            binding: String::new(),
            namespace: String::new(),
            origin: Origin::Owner,
            level: None,
        });
    }
    let own = ids::clusterrolebindings();
    collect(
        snapshot,
        Scope::cluster(own.clone(), cluster.clone()),
        Origin::Workspace,
        &mut found,
    );
    let namespaced = match which.namespaces {
        Namespaces::None => None,
        Namespaces::One(name) => Some(Scope::namespace(ids::rolebindings(), cluster.clone(), name)),
        Namespaces::All => Some(Scope::cluster(ids::rolebindings(), cluster.clone())),
    };
    if let Some(scope) = namespaced {
        collect(snapshot, scope, Origin::Workspace, &mut found);
    }
    let platform = ClusterName::system_admin();
    if which.platform && *cluster != platform {
        collect(snapshot, Scope::cluster(own, platform), Origin::Platform, &mut found);
    }
    if which.bootstrap {
        for binding in &BOOTSTRAP.bindings {
            // Bindings of every workspace have the name of their role.
            add(binding, &binding.role, "", Origin::Bootstrap, None, &mut found);
        }
    }
    found
}

fn collect(snapshot: &Snapshot, scope: Scope, origin: Origin, found: &mut Vec<Holder>) {
    snapshot.for_each(&scope, |entry| {
        let binding = entry.object.parsed(|object| read_binding(&object.body_value()));
        let level = entry.object.meta.label(labels::ACCESS);
        add(&binding, &entry.key.name, &entry.key.namespace, origin, level, found);
        ControlFlow::Continue(())
    });
}

fn add(binding: &Binding, name: &str, namespace: &str, origin: Origin, level: Option<&str>, found: &mut Vec<Holder>) {
    // A user has no namespace, whatever that of the binding.
    let plain = |subject: &Subject| Subject {
        namespace: match subject.kind {
            SubjectKind::ServiceAccount => subject.namespace.clone(),
            SubjectKind::User | SubjectKind::Group => String::new(),
        },
        ..subject.clone()
    };
    found.extend(binding.subjects.iter().map(|subject| Holder {
        subject: plain(subject),
        role: binding.role.clone(),
        role_is_namespaced: binding.of_namespace,
        binding: name.to_owned(),
        namespace: namespace.to_owned(),
        origin,
        level: level.map(str::to_owned),
    }));
}

impl Holder {
    /// Returns the rules of the role; `None` if there is no such role.
    fn rules(&self, snapshot: &Snapshot, cluster: &ClusterName) -> Option<Arc<Vec<PolicyRule>>> {
        let of = match self.origin {
            Origin::Platform => &ClusterName::system_admin(),
            Origin::Owner | Origin::Bootstrap | Origin::Workspace => cluster,
        };
        let namespace = self.role_is_namespaced.then_some(&*self.namespace);
        RolesAt::new(snapshot, of).rules_of(namespace, &self.role)
    }

    /// Returns true if the role allows it. The owner may do everything.
    pub fn allows(&self, snapshot: &Snapshot, cluster: &ClusterName, attributes: &Attributes) -> bool {
        self.origin == Origin::Owner
            || self
                .rules(snapshot, cluster)
                .is_some_and(|rules| rules.iter().any(|rule| rule.allows(attributes)))
    }
}

/// Returns a user who is this subject and no other: of a group, a nameless member of it alone.
pub fn as_user(subject: &Subject, groups: &[String]) -> UserInfo {
    let Subject { kind, name, namespace } = subject;
    let with = |own: &[&str]| {
        own.iter()
            .map(|own| (*own).to_owned())
            .chain(groups.iter().cloned())
            .collect()
    };
    match kind {
        SubjectKind::User if name == USER_ANONYMOUS => UserInfo::anonymous(),
        SubjectKind::Group if name == GROUP_UNAUTHENTICATED => UserInfo::anonymous(),
        SubjectKind::User => UserInfo::authenticated(name, "", with(&[])),
        SubjectKind::Group => UserInfo::authenticated("", "", with(&[name])),
        SubjectKind::ServiceAccount => {
            let own = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}")];
            UserInfo::authenticated(format!("system:serviceaccount:{namespace}:{name}"), "", with(&own))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_nobody_else() {
        let subject = |kind, name: &str, namespace: &str| Subject {
            kind,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        };
        let subjects = [
            subject(SubjectKind::User, "bob", ""),
            subject(SubjectKind::Group, "devs", ""),
            subject(SubjectKind::ServiceAccount, "robot", "default"),
        ];
        for one in &subjects {
            for other in &subjects {
                assert_eq!(one.is(&as_user(other, &[])), one == other, "{one:?} {other:?}");
            }
        }
        let devs = as_user(&subjects[0], &["devs".to_owned()]);
        assert!(subjects[1].is(&devs), "groups that the question names count");
        assert!(!as_user(&subject(SubjectKind::User, USER_ANONYMOUS, ""), &[]).is_in("system:authenticated"));
    }
}
