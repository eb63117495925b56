//! ServiceAccounts.

use crate::{
    Builtin, Strategy, Subresource, Table, TableColumn, Traits,
    kind::{
        crd,
        message::{Field, META, Message, OBJECT_REFERENCE, Type, one, text, texts},
    },
};
use insula_api::{Json, Timestamp, Verb};

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &ServiceAccounts,
    claimable: true,
    merge_keys: &[("secrets", "name")],
    subresources: &[Subresource {
        name: "token",
        body: Some(("authentication.k8s.io", "v1", "TokenRequest")),
        verbs: &[Verb::Create],
    }],
    messages: &[
        Message::new("v1", "ServiceAccount", MESSAGE),
        Message::new("authentication.k8s.io/v1", "TokenRequest", TOKEN_REQUEST),
    ],
    table: Some(Table::new(&[TableColumn::NAME, TableColumn::AGE])),
    ..Builtin::new(crd!("core_serviceaccounts"))
}];

const MESSAGE: &[Field] = &[
    (1, "metadata", Type::Message(META), false),
    (2, "secrets", Type::Message(OBJECT_REFERENCE), true),
    (
        3,
        "imagePullSecrets",
        Type::Message(&[(1, "name", Type::Text, false)]),
        true,
    ),
    (4, "automountServiceAccountToken", Type::Bool, false),
];
const BOUND_OBJECT: &[Field] = &[text(1, "kind"), text(2, "apiVersion"), text(3, "name"), text(4, "uid")];
const TOKEN_WANTED: &[Field] = &[
    texts(1, "audiences"),
    one(3, "boundObjectRef", BOUND_OBJECT),
    (4, "expirationSeconds", Type::Integer, false),
];
const TOKEN_REQUEST: &[Field] = &[one(1, "metadata", META), one(2, "spec", TOKEN_WANTED)];

/// ServiceAccounts.
struct ServiceAccounts;

impl Strategy for ServiceAccounts {
    fn traits(&self) -> Traits {
        Traits {
            deletes_to_object: true,
            ..Traits::BUILT_IN
        }
    }

    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        keep_names_of_secrets(new);
    }

    fn prepare_for_update(&self, new: &mut Json, _old: &Json, _now: Timestamp) {
        keep_names_of_secrets(new);
    }
}

/// Keeps only the names of an account's secrets. The secrets are in the account's namespace, so a
/// name identifies them.
fn keep_names_of_secrets(account: &mut Json) {
    for secret in account
        .get_mut("secrets")
        .and_then(Json::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(fields) = secret.as_object_mut() {
            fields.retain(|field, _| field == "name");
        }
    }
}
