//! Admission of writes: the rules of the built-in kinds and the policies of the workspace.

use super::options::WriteOptions;
use crate::{deps::Deps, draft::Draft};
use insula_access::Target;
use insula_admission::{
    kinds::{self, Operation, Review},
    policy::{self, WriteBudget},
};
use insula_catalog::{Error, Part, Result, stored};
use insula_store::{Entry, Snapshot};

/// A write under admission.
#[derive(Clone, Copy)]
pub(crate) struct Admission<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) target: &'a Target,
    pub(crate) options: &'a WriteOptions<'a>,
    pub(crate) operation: Operation,
    pub(crate) part: Part,
    pub(crate) name: &'a str,
    /// The object as it was.
    pub(crate) old: Option<&'a Entry>,
    /// CEL budget of all attempts of the write.
    pub(crate) budget: &'a WriteBudget,
}

impl<'a> Admission<'a> {
    fn request(&self) -> policy::Request<'a> {
        policy::Request {
            snapshot: self.snapshot,
            target: self.target,
            user: self.options.user,
            operation: self.operation,
            part: self.part,
            dry_run: self.options.dry_run,
            name: self.name,
            old: self.old,
            record: &self.options.record,
            budget: self.budget,
        }
    }
}

/// Returns the policies of the workspace that may change the sent object.
pub(crate) fn mutations<'a>(deps: &'a Deps, admission: &Admission<'a>) -> Option<policy::Mutations<'a>> {
    policy::Mutations::find(&deps.policies, &deps.catalog, admission.request())
}

fn review<'a>(deps: &'a Deps, admission: &Admission<'a>) -> Review<'a> {
    let Admission { snapshot, target, .. } = *admission;
    Review {
        snapshot,
        catalog: &deps.catalog,
        user: admission.options.user,
        cluster: &target.cluster,
        served: &target.served,
        operation: admission.operation,
        part: admission.part,
        now: deps.clock.now(),
        warnings: Default::default(),
    }
}

/// Adds details from the snapshot to a refusal.
pub(crate) fn explained(deps: &Deps, admission: &Admission<'_>, refusal: Error) -> Error {
    kinds::explain(&review(deps, admission), refusal)
}

/// Runs admission and returns its warnings: the rules of the built-in kinds, the policies of
/// the workspace, then its webhooks.
pub(crate) fn admit(deps: &Deps, admission: &Admission<'_>, mut new: Option<&mut Draft>) -> Result<Vec<String>> {
    let old = admission.old.map(stored::stored_value);
    let mut warnings = kinds::review(
        review(deps, admission),
        new.as_mut().map(|draft| &mut draft.value),
        old.as_ref(),
    )?;
    let new = new.as_ref().map_or(policy::New::Nothing, |draft| draft.as_new());
    let request = admission.request();
    warnings.extend(policy::review(&deps.policies, &deps.catalog, &request, new)?);
    warnings.extend(policy::ask_webhooks(&request, new)?);
    Ok(warnings)
}
