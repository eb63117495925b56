//! New versions of a CustomResourceDefinition without rules. A version that does not show what
//! stored objects hold takes it away with the first write through it, so it waits for rules or for
//! somebody's word.

use super::{Acceptance, Effect, Effects, Serving, unaccepted};
use insula_access::WorkspaceNames;
use insula_api::{Json, Scope, names::annotations::ACCEPTED_EFFECTS, names::effects};
use insula_auth::UserInfo;
use insula_catalog::{Catalog, Served};
use insula_meter::Meter;
use insula_store::Snapshot;
use std::ops::ControlFlow;

/// Objects that are compared: some seconds at most. The same number for admission and for the
/// reconciler, so that both have one verdict.
const OBJECTS_MAX: usize = 10_000;

/// Returns the effects for which a definition without rules waits: those by which a version that it
/// begins to serve hides values of stored objects, and that its annotation does not accept.
/// `served` is what serves them now, and `definition` what is to serve them.
pub fn hidden_by_new_versions(
    (catalog, snapshot): (&Catalog, &Snapshot),
    served: &Served,
    scope: &Scope,
    definition: &Json,
    meter: &Meter,
) -> Vec<Effect> {
    // What a webhook would show of stored objects is not known here.
    if definition["spec"]["conversion"]["strategy"] == "Webhook" {
        return Vec::new();
    }
    let Ok(after) = catalog.compile(definition) else {
        return Vec::new();
    };
    let is_known = |version: &str| served.api.bundle.served().any(|known| known == version);
    if after.bundle.served().all(is_known) {
        return Vec::new();
    }
    let mut effects = Effects::new(&served.api, &after, meter).of_definition();
    let mut serving = Serving::new(catalog, snapshot, served.resource_id());
    // The names are those of the definition's own workspace.
    let names = WorkspaceNames::new(snapshot, &UserInfo::default());
    let mut examined = 0;
    snapshot.for_each(scope, |entry| {
        if examined == OBJECTS_MAX {
            return ControlFlow::Break(());
        }
        examined += 1;
        // Objects that a version cannot show have a warning of their own.
        let _ = effects.examine(&names, entry, &mut serving);
        ControlFlow::Continue(())
    });
    let found = effects.finish();
    let accepted = Acceptance::all(definition, &[ACCEPTED_EFFECTS], drop);
    let hides = |effect: &&Effect| effect.kind == effects::VALUE_HIDDEN && !is_known(&effect.version);
    unaccepted(&found, &accepted)
        .into_iter()
        .filter(hides)
        .cloned()
        .collect()
}
