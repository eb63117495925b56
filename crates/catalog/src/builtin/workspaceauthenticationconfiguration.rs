//! WorkspaceAuthenticationConfigurations.

use crate::{Builtin, Strategy, issuer_list, kind::crd};
use insula_api::{FieldError, Json};

pub(super) const KINDS: &[Builtin] = &[Builtin {
    strategy: &AuthenticationConfigurations,
    ..Builtin::new(crd!("tenancy.kcp.io_workspaceauthenticationconfigurations"))
}];

/// WorkspaceAuthenticationConfigurations. kcp stores what its definition admits, and so do we;
/// warnings name the issuers that cannot be used.
struct AuthenticationConfigurations;

impl Strategy for AuthenticationConfigurations {
    fn validate(&self, new: &Json) -> Vec<FieldError> {
        issuer_list::check_count(new)
    }

    fn warnings(&self, new: &Json, _: Option<&Json>) -> Vec<String> {
        let unusable = issuer_list::unusable(new);
        let warning = |error: &FieldError| format!("{error}: tokens of this issuer are not accepted");
        unusable.iter().map(warning).collect()
    }
}
