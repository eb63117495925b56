//! Columns of built-in kinds, as kubectl prints them.

use super::{
    cell::{Cell, NAME},
    event,
};

const CONFIG_DATA_TEXT: &str = "Data contains the configuration data. Each key must consist of alphanumeric characters, '-', \
    '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored in Data must not overlap \
    with the keys in the BinaryData field, this is enforced during validation process.";
const HOLDER_TEXT: &str = "holderIdentity contains the identity of the holder of a current lease. If Coordinated Leader \
    Election is used, the holder identity must be equal to the elected LeaseCandidate.metadata.name field.";
const ROLE_REF_TEXT: &str = "RoleRef can reference a Role in the current namespace or a ClusterRole in the global \
    namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.";
const CLUSTER_ROLE_REF_TEXT: &str = "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot \
    be resolved, the Authorizer must return an error.";
const SECRET_TYPE_TEXT: &str = "Used to facilitate programmatic handling of secret data. More info: \
    https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
const SECRET_DATA_TEXT: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or \
    '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) \
    data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";

/// The layout of a built-in kind.
pub(super) struct BuiltinLayout {
    /// All columns.
    pub(super) cells: Vec<Cell<'static>>,
    /// True if `rows` of an empty table is null.
    pub(super) null_when_empty: bool,
}

/// Returns the layout of a built-in kind; `None` for other resources.
pub(super) fn layout(group: &str, plural: &str) -> Option<BuiltinLayout> {
    let (cells, null_when_empty) = match (group, plural) {
        ("" | "events.k8s.io", "events") => {
            let parts = event::Part::ALL.into_iter().map(Cell::Event);
            (parts.chain([Cell::Name { priority: 1 }]).collect(), false)
        }
        ("apiextensions.k8s.io", "customresourcedefinitions")
        | ("rbac.authorization.k8s.io", "roles" | "clusterroles") => (vec![NAME, Cell::Created], true),
        _ => {
            let cells = match group {
                "" => core(plural)?,
                _ => other(group, plural)?,
            };
            (std::iter::once(NAME).chain(cells).collect(), false)
        }
    };
    Some(BuiltinLayout { cells, null_when_empty })
}

const AGE: Cell<'_> = Cell::Age { kind: "string" };

/// Returns the columns after the name of a kind of the core group.
fn core(plural: &str) -> Option<Vec<Cell<'static>>> {
    Some(match plural {
        "namespaces" => vec![
            Cell::Text {
                name: "Status",
                pointer: "/status/phase",
                text: "The status of the namespace",
            },
            AGE,
        ],
        "configmaps" => {
            vec![
                Cell::Count {
                    name: "Data",
                    fields: &["data", "binaryData"],
                    text: CONFIG_DATA_TEXT,
                },
                AGE,
            ]
        }
        "secrets" => vec![
            Cell::Text {
                name: "Type",
                pointer: "/type",
                text: SECRET_TYPE_TEXT,
            },
            Cell::Count {
                name: "Data",
                fields: &["data"],
                text: SECRET_DATA_TEXT,
            },
            AGE,
        ],
        "serviceaccounts" => vec![AGE],
        "resourcequotas" => vec![
            Cell::Quota {
                name: "Request",
                limits: false,
                text: "Request represents a minimum amount of cpu/memory that a container may consume.",
            },
            Cell::Quota {
                name: "Limit",
                limits: true,
                text: "Limits control the maximum amount of cpu/memory that a container may use independent of \
                       contention on the node.",
            },
            AGE,
        ],
        _ => return None,
    })
}

/// Returns the columns after the name of a kind of another group.
fn other(group: &str, plural: &str) -> Option<Vec<Cell<'static>>> {
    Some(match (group, plural) {
        ("coordination.k8s.io", "leases") => vec![
            Cell::Text {
                name: "Holder",
                pointer: "/spec/holderIdentity",
                text: HOLDER_TEXT,
            },
            AGE,
        ],
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
            vec![
                Cell::Items {
                    name: "Webhooks",
                    field: "webhooks",
                    text: "Webhooks indicates the number of webhooks registered in this configuration",
                },
                AGE,
            ]
        }
        ("rbac.authorization.k8s.io", "rolebindings") => binding(
            ROLE_REF_TEXT,
            [
                "Users in the roleBinding",
                "Groups in the roleBinding",
                "ServiceAccounts in the roleBinding",
            ],
        ),
        ("rbac.authorization.k8s.io", "clusterrolebindings") => binding(
            CLUSTER_ROLE_REF_TEXT,
            [
                "Users in the clusterRoleBinding",
                "Groups in the clusterRoleBinding",
                "ServiceAccounts in the clusterRoleBinding",
            ],
        ),
        ("certificates.k8s.io", "certificatesigningrequests") => vec![
            AGE,
            Cell::Text {
                name: "SignerName",
                pointer: "/spec/signerName",
                text: "Who is asked to sign.",
            },
            Cell::Text {
                name: "Requestor",
                pointer: "/spec/username",
                text: "Who asked.",
            },
            Cell::RequestedDuration,
            Cell::Verdict,
        ],
        _ => return None,
    })
}

/// Returns the columns of a binding, with texts for users, groups and service accounts.
fn binding(role: &'static str, texts: [&'static str; 3]) -> Vec<Cell<'static>> {
    let [users, groups, accounts] = texts;
    let subjects = |name, kind, text| Cell::Subjects { name, kind, text };
    vec![
        Cell::Role { text: role },
        Cell::Age { kind: "string" },
        subjects("Users", "User", users),
        subjects("Groups", "Group", groups),
        subjects("ServiceAccounts", "ServiceAccount", accounts),
    ]
}
