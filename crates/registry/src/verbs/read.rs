//! Get and list: reads of one snapshot with key ranges, selectors and pages.

use super::{
    page::{List, ListOptions, Token},
    select::{Extent, Selectors, States, check_fields, for_each_selected, selects_metadata},
};
use crate::{built_in_rbac, calls, deps::Deps, representation::prefetch};
use futures_util::future::BoxFuture;
use insula_access::{Target, view::ViewScope};
use insula_api::{Json, Revision, measure::TRACE};
use insula_catalog::{Result, ids, stored};
use insula_store::{Entry, Pinned, Snapshot};
use std::ops::ControlFlow;
use tracing::Instrument;

/// Returns one object.
///
/// # Errors
/// The object does not exist, or the view scope hides it (404).
pub fn get(deps: &Deps, snapshot: &Snapshot, target: &Target, name: &str) -> Result<Entry> {
    match get_stored(deps, snapshot, target, name) {
        Ok(entry) => Ok(entry),
        Err(absent) => built_in_rbac::find(snapshot, target, name).ok_or(absent),
    }
}

/// Returns one object that a write may change.
///
/// # Errors
/// The object does not exist, or the view scope hides it (404); or it is a built-in role, which is
/// not stored (403).
pub(super) fn get_stored(deps: &Deps, snapshot: &Snapshot, target: &Target, name: &str) -> Result<Entry> {
    let mut looking = target.looking(&deps.catalog, snapshot);
    snapshot
        .get(&target.key(name))
        .filter(|entry| looking.sees_entry(entry))
        .ok_or_else(|| built_in_rbac::absent(target, name))
}

/// Returns an object as the target shows it, and calls its conversion webhook if it has one.
///
/// # Errors
/// The object cannot be converted, or its webhook failed.
pub async fn show(deps: &Deps, target: &Target, entry: &Entry) -> Result<Json> {
    let target = calls::attach(deps, target);
    prefetch(&target, std::iter::once(entry)).await;
    let mut value = stored::value(&target.serving(&entry.key), entry, &target.version)?;
    target.show_label(&mut value);
    Ok(value)
}

/// Returns a page of objects as they are. For a token of an older revision, see [`list_at`].
///
/// # Errors
/// A selector or the token is invalid, or an object cannot be converted for a field selector.
pub async fn list(deps: &Deps, snapshot: &Snapshot, target: &Target, options: &ListOptions) -> Result<List> {
    list_at(deps, snapshot, snapshot, target, options).await
}

/// Returns a page of objects at an older state, `snapshot`, for a caller who may read them now.
/// With a token, `snapshot` must be the state at the token's revision (see [`Token`]). A view
/// scope shows only objects that it showed then and still shows, so an old revision does not
/// restore revoked rights.
///
/// # Errors
/// The resource or the workspace of that name was another one then, or the history of a workspace
/// that was read was cut since (410). A selector or the token is invalid, or an object cannot be
/// converted for a field selector.
pub fn list_at<'a>(
    deps: &'a Deps,
    now: &'a Snapshot,
    snapshot: &'a Snapshot,
    target: &'a Target,
    options: &'a ListOptions,
) -> BoxFuture<'a, Result<List>> {
    Box::pin(async move {
        check_fields(target, &options.fields)?;
        let states = States { now, read: snapshot };
        if states.is_past() && (snapshot.revision() < served_since(now, target) || has_new_owner(states, target)) {
            return Err(Token::expired(options.next.as_deref()));
        }
        let token = options.next.as_deref().map(Token::decode).transpose()?;
        let after = token.as_ref().map(|token| token.start_key(target)).transpose()?;
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let selectors = Selectors {
            labels: &target.stored_selector(&options.labels),
            fields: &options.fields,
        };
        let (mut entries, mut more) = (Vec::new(), false);
        let target = &*calls::attach(deps, target);
        let extent = Extent {
            after: after.as_ref(),
            // One more than the page shows that there is a next page.
            wanted: limit.saturating_add(1),
        };
        let ranged = for_each_selected(deps, states, target, selectors, extent, |entry| {
            if entries.len() == limit {
                more = true;
                return ControlFlow::Break(());
            }
            entries.push(entry.clone());
            ControlFlow::Continue(())
        });
        ranged
            .instrument(tracing::info_span!(target: TRACE, "store range"))
            .await?;
        if !more {
            // The last page has them all: they have no keys at which a page could begin.
            let built_in = built_in_rbac::all(snapshot, target).into_iter();
            let before = entries.len();
            entries.extend(built_in.filter(|entry| selects_metadata(target, selectors, entry)));
            if entries.len() > before {
                entries.sort_by(|a, b| a.key.cmp(&b.key));
            }
        }
        let last = if more { entries.last() } else { None };
        let is_counted = options.labels.is_empty()
        && options.fields.is_empty()
        // A caller who sees only a part must not learn the total.
        && matches!(target.view_scope, ViewScope::Within);
        let remaining = last.filter(|_| is_counted).map(|last| match &token {
            None => snapshot.count(&target.scope()).saturating_sub(entries.len()),
            Some(Token { left: Some(left), .. }) => left.saturating_sub(entries.len()),
            Some(_) => snapshot.count_after(&target.scope(), Some(&last.key)),
        });
        if states.is_past() && snapshot.check_reads().is_err() {
            return Err(Token::expired(options.next.as_deref()));
        }
        let next = last.map(|last| Token::after(&last.key, target, snapshot.revision(), remaining).encode());
        Ok(List {
            entries,
            revision: snapshot.revision(),
            next,
            remaining,
        })
    })
}

/// Returns the revision at which the resource's route was created in the cluster. Objects of an
/// earlier resource of the same name are not part of its history. In kube-apiserver, too, the
/// history begins with the definition.
pub(super) fn served_since(now: &Pinned, target: &Target) -> Revision {
    let route = target.served.guard.as_ref();
    route
        .and_then(|(route, _)| now.get(route))
        .map_or(Revision(0), |route| route.created)
}

/// Returns true if another cluster had this name at the older state. Home workspaces are named
/// after their users, so names recur.
fn has_new_owner(states: States<'_>, target: &Target) -> bool {
    let uid = |snapshot: &Pinned| {
        let logical = snapshot.get(&ids::logical_cluster(&target.cluster))?;
        Some(logical.object.meta.uid)
    };
    !target.is_across() && uid(states.read).is_some_and(|was| uid(states.now) != Some(was))
}
