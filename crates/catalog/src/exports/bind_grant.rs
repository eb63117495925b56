//! The right to bind one export: the ClusterRole and ClusterRoleBinding in its workspace that give
//! it, and the text by which somebody without the right can ask for it.
//!
//! ```text
//! insula:bind:widgets            the verb bind on apiexports, resource name widgets
//! insula:bind:widgets:user:bob   binds it to bob
//! ```
//! The text is made of the request alone, so it is the same for exports and workspaces that exist
//! and for those that do not.

use crate::{
    digest, ids,
    names::{NameRule, name_problems},
};
use insula_api::{Json, names::groups};
use insula_auth::{Subject, SubjectKind};
use serde_json::json;

/// Bytes of an export's or a subject's name up to which it stands in the name of an object.
const READABLE_BYTES_MAX: usize = 150;
/// Bytes of a user's name up to which a refusal repeats it.
const USER_BYTES_MAX: usize = 512;
/// Begin of the way to the right in a refusal.
pub const WAY: &str = "who administers";
const VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Returns a name as it stands in the name of an object: a long one, or one that cannot stand in a
/// path, is replaced by its digest.
fn readable(name: &str) -> String {
    let is_plain =
        name.len() <= READABLE_BYTES_MAX && name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '/' | '%'));
    match is_plain {
        true => name.to_owned(),
        false => digest::base62(name),
    }
}

/// Returns the name of the ClusterRole with the right to bind an export.
pub fn role_name(export: &str) -> String {
    format!("insula:bind:{}", readable(export))
}

/// Returns the name of the ClusterRoleBinding that gives a subject the right to bind an export.
pub fn binding_name(export: &str, subject: &Subject) -> String {
    format!("{}:{}", role_name(export), subject_name(subject))
}

/// Returns a subject as it stands in the name of an object: `user:bob`.
pub fn subject_name(subject: &Subject) -> String {
    let Subject { kind, name, namespace } = subject;
    let (kind, full) = match kind {
        SubjectKind::User => ("user", name.clone()),
        SubjectKind::Group => ("group", name.clone()),
        SubjectKind::ServiceAccount => ("serviceaccount", format!("{namespace}:{name}")),
    };
    format!("{kind}:{}", readable(&full))
}

/// Returns the ClusterRole with the right to bind an export, and nothing else.
pub fn role(export: &str) -> Json {
    json!({
        "apiVersion": VERSION, "kind": "ClusterRole", "metadata": {"name": role_name(export)},
        "rules": [{"apiGroups": [groups::APIS], "resources": ["apiexports"], "resourceNames": [export],
            "verbs": ["bind"]}],
    })
}

/// Returns the ClusterRoleBinding that gives a subject the right to bind an export.
pub fn binding(export: &str, subject: &Subject) -> Json {
    let metadata = json!({"name": binding_name(export, subject)});
    cluster_role_binding(metadata, &role_name(export), subject)
}

/// Returns the objects that give subjects the right to bind an export; none without subjects.
pub fn objects(export: &str, subjects: &[Subject]) -> Vec<Json> {
    let role = (!subjects.is_empty()).then(|| role(export));
    let bindings = subjects.iter().map(|subject| binding(export, subject));
    role.into_iter().chain(bindings).collect()
}

/// Returns true if an object grants what another one does.
pub fn grants_the_same(there: &Json, wanted: &Json) -> bool {
    ["rules", "aggregationRule", "roleRef", "subjects"]
        .iter()
        .all(|field| there.get(field) == wanted.get(field))
}

/// Returns the refusal of an object that has the name of a grant and grants something else.
pub fn other_grant(there: &Json) -> String {
    let kind = there["kind"].as_str().unwrap_or_default();
    let name = there["metadata"]["name"].as_str().unwrap_or_default();
    format!(
        "{kind} {name} exists and grants something else than the right to bind: delete it or give it another name, \
         then try again"
    )
}

/// Returns a ClusterRoleBinding of one subject.
pub fn cluster_role_binding(metadata: Json, role: &str, subject: &Subject) -> Json {
    let Subject { kind, name, namespace } = subject;
    let subject = match kind {
        SubjectKind::User => json!({"apiGroup": ids::RBAC, "kind": "User", "name": name}),
        SubjectKind::Group => json!({"apiGroup": ids::RBAC, "kind": "Group", "name": name}),
        SubjectKind::ServiceAccount => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
    };
    json!({
        "apiVersion": VERSION, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": ids::RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    })
}

/// Quotes a word for a shell, where it needs quotes.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '/');
    match !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Returns the way to the right to bind an export, for whoever may grant it: a command, and the two
/// objects as YAML. `None` for names that no export or no subject can have.
///
/// `user` is the caller's name in the export's workspace, `workspace` the path that they wrote.
pub fn way_to_the_right(workspace: &str, export: &str, user: &str) -> Option<String> {
    let is_export = name_problems(export, NameRule::Subdomain).is_empty();
    let is_user = !user.is_empty() && user.len() <= USER_BYTES_MAX && !user.chars().any(char::is_control);
    if !is_export || !is_user {
        return None;
    }
    let subject = Subject {
        kind: SubjectKind::User,
        name: user.to_owned(),
        namespace: String::new(),
    };
    let word = shell_word(user);
    let dashes = if user.starts_with('-') { "-- " } else { "" };
    let (role, binding) = (json!(role_name(export)), json!(binding_name(export, &subject)));
    Some(format!(
        "{WAY} {workspace} can grant it by the command\n  \
         insula access grant --workspace {workspace} --bind {export} {dashes}{word}\n\
         or by these objects in {workspace}:\n  \
         apiVersion: {VERSION}\n  \
         kind: ClusterRole\n  \
         metadata: {{name: {role}}}\n  \
         rules: [{{apiGroups: [{apis}], resources: [apiexports], resourceNames: [{name}], verbs: [bind]}}]\n  \
         ---\n  \
         apiVersion: {VERSION}\n  \
         kind: ClusterRoleBinding\n  \
         metadata: {{name: {binding}}}\n  \
         roleRef: {{apiGroup: {rbac}, kind: ClusterRole, name: {role}}}\n  \
         subjects: [{{apiGroup: {rbac}, kind: User, name: {user}}}]",
        apis = groups::APIS,
        rbac = ids::RBAC,
        name = json!(export),
        user = json!(user),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_and_the_yaml_give_the_same_right() {
        let text = way_to_the_right("root:provider", "widgets", "it's bob").expect("names of an export and a user");
        assert!(
            text.contains(r"insula access grant --workspace root:provider --bind widgets 'it'\''s bob'"),
            "{text}"
        );
        let yaml: String = text.lines().skip(3).map(|line| format!("{}\n", &line[2..])).collect();
        let objects: Vec<Json> = serde_saphyr::from_multiple(&yaml).expect("YAML");
        let subject = Subject {
            kind: SubjectKind::User,
            name: "it's bob".to_owned(),
            namespace: String::new(),
        };
        assert_eq!(objects, [role("widgets"), binding("widgets", &subject)]);
    }

    #[test]
    fn names_that_cannot_be_are_not_repeated() {
        let long = "u".repeat(USER_BYTES_MAX + 1);
        for (export, user) in [
            ("w; rm -rf /", "bob"),
            ("", "bob"),
            ("w", ""),
            ("w", "a\nb"),
            ("w", &long),
        ] {
            assert_eq!(way_to_the_right("root", export, user), None, "{export} {user}");
        }
        let text = way_to_the_right("root", "w", "--as=x").expect("names");
        assert!(text.contains("--bind w -- '--as=x'"), "{text}");
    }
}
