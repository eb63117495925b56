//! WorkspaceAuthenticationConfigurations.

use crate::{Builtin, Strategy, issuer_list, kind::crd};
use insula_api::{FieldError, Json};

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &AuthenticationConfigurations,
    ..Builtin::new(crd!("tenancy.kcp.io_workspaceauthenticationconfigurations"))
}];

/// WorkspaceAuthenticationConfigurations. Validation refuses issuers that cannot be used.
struct AuthenticationConfigurations;

impl Strategy for AuthenticationConfigurations {
    fn validate(&self, new: &Json) -> Vec<FieldError> {
        issuer_list::check(new)
    }
}
