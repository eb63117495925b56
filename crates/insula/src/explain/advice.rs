//! Advice that gets a refused request allowed.

use serde_json::{Value, json};

use super::explanation::Request;

/// Advice as a message, and as objects for the workspace of the request.
pub(super) struct Advice {
    pub(super) message: String,
    pub(super) manifest: Option<String>,
}

impl From<&str> for Advice {
    fn from(message: &str) -> Self {
        Advice {
            message: message.to_owned(),
            manifest: None,
        }
    }
}

/// Returns advice on a refused request. None if its response is clear by itself.
pub(super) fn advice(request: &Request<'_>) -> Option<Advice> {
    if request.is_forbidden() {
        return Some(forbidden(request));
    }
    let advice = match request.code() {
        401 => {
            "The credential is not one that this server knows: a bearer token must be in its token file, or belong to \
             an existing service account and not be expired; a certificate must be signed by its CA. A request \
             without a credential is one of system:anonymous."
        }
        404 if request.note("kcp.io/cluster").is_empty() => {
            "There is no workspace of this name: `kubectl get workspaces` in its parent lists those that exist."
        }
        403 if request
            .note("insula.io/reason")
            .starts_with("there is no logical cluster") =>
        {
            "The first part of the path is no logical cluster. The response is the same as for a \
             workspace that the user may not enter."
        }
        403 if ["the logical cluster ", "the workspace "]
            .iter()
            .any(|start| request.note("insula.io/reason").starts_with(start)) =>
        {
            "The path leads to no workspace that can be entered. The user may not see which workspaces exist, so the \
             response is the same as for a workspace that the user may not enter."
        }
        409 => "Another client wrote the object in between: read it again and repeat the change on the current object.",
        429 => {
            "A limit on concurrent requests was reached. The client should retry after the seconds of Retry-After; \
             limits.* in the settings has the limits of a workspace and a user (see Limits in docs/operations.md)."
        }
        500.. => "The server's log has the cause: search it for the id.",
        _ => return None,
    };
    Some(advice.into())
}

fn forbidden(request: &Request<'_>) -> Advice {
    let user = request.user();
    if user == "system:anonymous" {
        return "The request had no credential. Send one: a client certificate or a bearer token.".into();
    }
    match request
        .refusing_step()
        .map(|step| step.split_once('-').map_or(step, |(_, name)| name))
    {
        Some("systemclusters") => {
            "No role changes this: system clusters are for system:masters, the context system:admin of the \
             administrator's kubeconfig."
                .into()
        }
        Some("wildcard") => {
            "Objects of all workspaces at once are for system:masters, and other paths outside of a workspace for \
             platform administrators (group system:kcp:admin). Name one: /clusters/<path>/…"
                .into()
        }
        Some("impersonation") => {
            "No role in a workspace changes this: impersonating a user of the system is for platform administrators \
             (group system:kcp:admin), and nobody may impersonate system:masters."
                .into()
        }
        Some("requiredgroups") => {
            "The workspace requires groups that the user is not in: its LogicalCluster lists them in the annotation \
             authorization.kcp.io/required-groups."
                .into()
        }
        Some("systemcrd") => "No role changes this: the status of bindings and exports is written by controllers \
         only."
            .into(),
        Some("maxpermissionpolicy") => Advice {
            message: format!(
                "The provider of the API does not let users of other workspaces do this. A role in the provider's \
                 workspace would, bound to the user \"apis.kcp.io:binding:{user}\"."
            ),
            manifest: None,
        },
        Some("content") if request.note("authorization.k8s.io/reason") == "the workspace is being initialized" => {
            "The workspace is not Ready yet. Its status.initializers lists the initializers that have not finished."
                .into()
        }
        Some("content") => Advice {
            message: format!(
                "{user} may not enter the workspace. Its owner, or an administrator, lets them in with the first \
                 of these objects; the others allow the request:"
            ),
            manifest: Some(documents(&[&[entry(user)][..], &role(request)].concat())),
        },
        Some(_) => "No role changes this.".into(),
        None if request.note("insula.io/reason").contains(" cannot impersonate ") => Advice {
            message: format!(
                "{} may not impersonate {user}. A role in the workspace with the verb impersonate on the resource that \
                 the response names would allow it.",
                request.text("/user/username")
            ),
            manifest: None,
        },
        None => Advice {
            message: format!(
                "No role of {user} in the workspace allows this. {}The owner of the workspace, or an administrator, \
                 can grant one with:",
                aggregated(request)
            ),
            manifest: Some(documents(&role(request))),
        },
    }
}

/// Returns the sentence about the roles that contain a bound API, for requests that may be for one.
fn aggregated(request: &Request<'_>) -> &'static str {
    let group = request.text("/objectRef/apiGroup");
    let is_own = ["k8s.io", "kcp.io"].iter().any(|own| group.ends_with(own));
    match (group.is_empty() || is_own, request.text("/objectRef/subresource")) {
        (true, _) => "",
        (false, "status") => {
            "If the workspace binds the API, its status is the provider's: of the roles in every workspace, only \
             cluster-admin may write it. "
        }
        (false, _) => "If the workspace binds the API, the ClusterRoles view (to read), edit and admin contain it. ",
    }
}

/// Returns the objects that give a user access to a workspace.
fn entry(user: &str) -> Value {
    let name = name(&["access", user]);
    binding("ClusterRoleBinding", "", &name, "system:kcp:workspace:access", user)
}

/// Returns the missing role and its binding, with the least permissions that the request needs.
fn role(request: &Request<'_>) -> [Value; 2] {
    let at = |field: &str| request.text(&format!("/objectRef/{field}"));
    let (user, namespace) = (request.user(), at("namespace"));
    // A patch that would create the object needs the permission to create it.
    let verb = match request.note("insula.io/reason").ends_with("takes the verb create") {
        true => "create",
        false => request.text("/verb"),
    };
    let resource = match at("subresource") {
        "" => at("resource").to_owned(),
        subresource => format!("{}/{subresource}", at("resource")),
    };
    let rule = if request.0["objectRef"].is_null() {
        let path = request.text("/requestURI").split('?').next().unwrap_or_default();
        let path = path
            .split_once("/clusters/")
            .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]))
            .unwrap_or(path);
        json!({"verbs": [verb], "nonResourceURLs": [path]})
    } else {
        let mut rule = json!({"verbs": [verb], "apiGroups": [at("apiGroup")], "resources": [resource]});
        // An object to be created has no name yet when access is decided.
        if !at("name").is_empty() && verb != "create" {
            rule["resourceNames"] = json!([at("name")]);
        }
        rule
    };
    let (kind, bound) = match namespace.is_empty() {
        true => ("ClusterRole", "ClusterRoleBinding"),
        false => ("Role", "RoleBinding"),
    };
    let name = name(&[verb, &resource, user]);
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    let role =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": [rule]});
    [role, binding(bound, namespace, &name, &name, user)]
}

fn binding(kind: &str, namespace: &str, name: &str, role: &str, user: &str) -> Value {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let mut metadata = json!({"name": name});
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    let account = user
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'));
    let subject = match account {
        Some((namespace, name)) => json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}),
        None => json!({"apiGroup": GROUP, "kind": "User", "name": user}),
    };
    let role = json!({"apiGroup": GROUP, "kind": kind.trim_end_matches("Binding"), "name": role});
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "roleRef": role,
        "subjects": [subject]})
}

/// Joins parts to a valid object name.
fn name(parts: &[&str]) -> String {
    let joined = parts.join("-").to_lowercase();
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = joined.chars().map(allowed).take(200).collect();
    name.trim_matches('-').to_owned()
}

fn documents(objects: &[Value]) -> String {
    let texts = objects
        .iter()
        .map(|object| serde_saphyr::to_string(object).unwrap_or_default());
    texts.collect::<Vec<String>>().join("---\n")
}

#[cfg(test)]
mod tests;
