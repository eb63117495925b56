//! Rules of roles and subjects of bindings (`k8s.io/api/rbac/v1`).

use crate::attributes::Attributes;
use crate::identities::SERVICE_ACCOUNT;
use crate::user::UserInfo;
use std::fmt;

const ALL: &str = "*";

/// A rule: verbs on resources of groups, or on paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyRule {
    /// Verbs such as `get` and `list`; `*` means all.
    pub verbs: Vec<String>,
    /// API groups; the core group is empty; `*` means all.
    pub api_groups: Vec<String>,
    /// Resources such as `widgets`, `widgets/status`, `*/scale`; `*` means all.
    pub resources: Vec<String>,
    /// Names of objects; an empty list means all.
    pub resource_names: Vec<String>,
    /// Paths; a final `*` matches any rest; `*` means all.
    pub non_resource_urls: Vec<String>,
}

impl PolicyRule {
    /// Returns true if the rule allows the request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        let Attributes {
            verb,
            group,
            resource,
            subresource,
            name,
            path,
            ..
        } = attributes;
        if !has(&self.verbs, verb.name()) {
            return false;
        }
        if !attributes.is_resource_request {
            return self.non_resource_urls.iter().any(|url| is_path(url, path));
        }
        let named = self.resource_names.is_empty() || self.resource_names.contains(name);
        named && has(&self.api_groups, group) && self.is_about(resource, subresource)
    }

    fn is_about(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|own| match own.split_once('/') {
            None => own == ALL || subresource.is_empty() && own == resource,
            Some((of, sub)) => !subresource.is_empty() && sub == subresource && (of == ALL || of == resource),
        })
    }

    /// Returns true if this rule allows everything that the other one does, which has one verb and
    /// one resource or path.
    pub(super) fn covers(&self, other: &PolicyRule) -> bool {
        let all = |own: &[String], wanted: &[String]| wanted.iter().all(|one| has(own, one));
        let resources = other.resources.iter().all(|wanted| match wanted.split_once('/') {
            None => has(&self.resources, wanted),
            Some((resource, sub)) => self.is_about(resource, sub),
        });
        let names = match other.resource_names.is_empty() {
            true => self.resource_names.is_empty(),
            false => self.resource_names.is_empty() || all(&self.resource_names, &other.resource_names),
        };
        let path = |wanted: &String| self.non_resource_urls.iter().any(|url| is_path(url, wanted));
        all(&self.verbs, &other.verbs)
            && all(&self.api_groups, &other.api_groups)
            && resources
            && names
            && other.non_resource_urls.iter().all(path)
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|one| one == ALL || one == wanted)
}

fn is_path(url: &str, path: &str) -> bool {
    match url.strip_suffix(ALL) {
        Some(beginning) => path.starts_with(beginning),
        None => url == path,
    }
}

/// Displays as Kubernetes prints rules in refusals:
/// `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

/// Prints a list of texts like Go's `%q`.
pub(super) fn quoted(list: &[String]) -> String {
    let list: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", list.join(" "))
}

/// Kind of a binding's subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectKind {
    /// One user.
    User,
    /// All users of a group.
    Group,
    /// A service account of the workspace.
    ServiceAccount,
}

/// Subject of a binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Kind of the subject.
    pub kind: SubjectKind,
    /// Its name.
    pub name: String,
    /// Namespace of a service account; otherwise empty.
    pub namespace: String,
}

impl Subject {
    /// Returns true if the subject is this user.
    pub fn is(&self, user: &UserInfo) -> bool {
        match self.kind {
            SubjectKind::User => user.name == self.name,
            SubjectKind::Group => user.is_in(&self.name),
            SubjectKind::ServiceAccount => {
                let account = user.name.strip_prefix(SERVICE_ACCOUNT);
                account.and_then(|account| account.split_once(':')) == Some((&self.namespace, &self.name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> PolicyRule {
        // verbs groups resources names; or verbs paths
        let list = |text: &str| match text {
            "-" => Vec::new(),
            _ => text.split(',').map(|one| one.replace("core", "")).collect(),
        };
        let parts: Vec<&str> = text.split(' ').collect();
        match parts.as_slice() {
            [verbs, paths] => PolicyRule {
                verbs: list(verbs),
                non_resource_urls: list(paths),
                ..PolicyRule::default()
            },
            [verbs, groups, resources, names] => PolicyRule {
                verbs: list(verbs),
                api_groups: list(groups),
                resources: list(resources),
                resource_names: list(names),
                ..PolicyRule::default()
            },
            _ => panic!("{text}"),
        }
    }

    #[test]
    fn rules_allow_what_they_say() {
        // A rule; verb, group, resource/subresource, name; and if it is allowed.
        for (own, asked, want) in [
            ("get,list core secrets -", "get core secrets a", true),
            ("get,list core secrets -", "delete core secrets a", false),
            ("get core secrets -", "get apps secrets a", false),
            ("* * * -", "delete apps things/status a", true),
            ("get core pods -", "get core pods/log a", false),
            ("get core pods/log -", "get core pods/log a", true),
            ("get core pods/log -", "get core pods a", false),
            ("get core */scale -", "get core things/scale a", true),
            ("get core */scale -", "get core things a", false),
            ("get core secrets a,b", "get core secrets b", true),
            ("get core secrets a,b", "get core secrets c", false),
            ("create core secrets a", "create core secrets -", false),
        ] {
            let parts: Vec<&str> = asked.split(' ').collect();
            let (resource, subresource) = parts[2].split_once('/').unwrap_or((parts[2], ""));
            let attributes = Attributes {
                verb: parts[0].to_owned().into(),
                group: parts[1].replace("core", ""),
                resource: resource.into(),
                subresource: subresource.into(),
                name: parts[3].replace('-', ""),
                is_resource_request: true,
                ..Attributes::default()
            };
            assert_eq!(rule(own).allows(&attributes), want, "{own} for {asked}");
        }
        for (own, path, want) in [
            ("get /api", "/api", true),
            ("get /api", "/api/v1", false),
            ("get /api/*", "/api/v1", true),
            ("get /api/*", "/api", false),
            ("get *", "/metrics", true),
            ("post /api", "/api", false),
        ] {
            let attributes = Attributes {
                verb: "get".into(),
                path: path.into(),
                ..Attributes::default()
            };
            assert_eq!(rule(own).allows(&attributes), want, "{own} for {path}");
        }
        let resource = rule("* * * -");
        let path = Attributes {
            verb: "get".into(),
            path: "/metrics".into(),
            ..Attributes::default()
        };
        assert!(!resource.allows(&path), "resources are no paths");
    }

    #[test]
    fn rules_cover_others() {
        for (own, other, want) in [
            ("get,list core secrets -", "get core secrets -", true),
            ("get core secrets -", "* core secrets -", false),
            ("* * * -", "* * * -", true),
            ("* core * -", "get * secrets -", false),
            ("get core secrets a", "get core secrets -", false),
            ("get core secrets -", "get core secrets a", true),
            ("get core secrets a", "get core secrets b", false),
            ("get core */scale -", "get core things/scale -", true),
            ("get core things -", "get core things/scale -", false),
            ("get /a/*", "get /a/b", true),
            ("get /a/*", "get /a/*", true),
            ("get /a/b", "get /a/*", false),
            ("get *", "get *", true),
        ] {
            assert_eq!(rule(own).covers(&rule(other)), want, "{own} over {other}");
        }
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let user = |name: &str| UserInfo::authenticated(name, "", vec!["devs".into()]);
        for (kind, subject, namespace, name, want) in [
            (SubjectKind::User, "ada", "", "ada", true),
            (SubjectKind::User, "devs", "", "ada", false),
            (SubjectKind::Group, "devs", "", "ada", true),
            (SubjectKind::Group, "ada", "", "ada", false),
            (
                SubjectKind::ServiceAccount,
                "robot",
                "ns",
                "system:serviceaccount:ns:robot",
                true,
            ),
            (
                SubjectKind::ServiceAccount,
                "robot",
                "other",
                "system:serviceaccount:ns:robot",
                false,
            ),
            (SubjectKind::ServiceAccount, "robot", "", "robot", false),
        ] {
            let (kind, namespace) = (kind, namespace.to_owned());
            let subject = Subject {
                kind,
                name: subject.into(),
                namespace,
            };
            assert_eq!(subject.is(&user(name)), want, "{subject:?} {name}");
        }
    }
}
