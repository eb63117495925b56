//! Paths of ThirdPartyResources: `/thirdparty`, and the setting that switches both generations off.

use crate::{ObjectPath, Refusal};
use insula_catalog::{Error, Origin, Served, registration::DefinitionKind};

/// Refuses paths that do not fit a resource: below `/thirdparty` there are only objects of the
/// first generation, and registrations have no namespace.
///
/// # Errors
/// A path that nothing is served at, and a registration in a namespace.
pub(crate) fn check(is_on: bool, path: &ObjectPath, served: &Served) -> Result<(), Refusal> {
    let is_on = is_on || !served.is_third_party();
    if !is_on || path.third_party && !is_first_generation(served) {
        return Err(Refusal::NotServed);
    }
    let is_registration = served.origin == Origin::System && served.is_third_party();
    if is_registration && path.namespace.is_some() {
        let why = format!(
            "a ThirdPartyResource belongs to no namespace: use /apis/{}/{}/thirdpartyresources",
            path.group, path.version
        );
        return Err(Refusal::Verb(Error::BadRequest(why)));
    }
    Ok(())
}

/// Returns true for a resource of the first generation.
pub fn is_first_generation(served: &Served) -> bool {
    matches!(&served.origin, Origin::Local { definition } if definition.kind == DefinitionKind::FirstRegistration)
}
