//! ServiceAccounts.

use crate::{Builtin, Strategy, Subresource, Table, TableColumn, Traits, kind::crd};
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
    table: Some(Table::new(&[TableColumn::NAME, TableColumn::AGE])),
    ..Builtin::new(crd!("core_serviceaccounts"))
}];

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
