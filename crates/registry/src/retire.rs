//! Removal of what stored objects hold in a field that their API has no more
//! ([`insula_conversion::Bundle::retire`]). No reader sees a difference: an object that a served
//! version would show otherwise stays as it is.

use crate::{
    client::Intent,
    deps::Deps,
    rewrite::{self, ATTEMPTS, Attempt},
};
use insula_api::{Json, ObjectKey, Scope};
use insula_catalog::{Result, Served};
use insula_conversion::{SchemaPath, Stored, ToStore, object_budget};
use insula_store::{Entry, Snapshot};
use std::sync::Arc;

/// A field that an API has no more.
#[derive(Debug, Clone)]
pub struct Field {
    /// The version that had it; `None` for all that lack it now.
    pub version: Option<String>,
    /// Its path.
    pub path: SchemaPath,
}

/// An object that holds something in the field.
#[derive(Debug)]
pub struct Holder {
    /// The object.
    pub entry: Entry,
    /// The reason for which it still does, or cannot be told.
    pub failed: String,
    intents: Vec<Intent>,
}

/// Examined objects, and the last of them if there are more.
#[derive(Debug)]
pub struct Page {
    /// Those that hold something.
    pub holders: Vec<Holder>,
    /// Number of objects examined.
    pub examined: usize,
    /// The key after which the next page begins.
    pub next: Option<ObjectKey>,
}

/// Finds the objects of a scope that hold something in the field: those of an API in all workspaces
/// that bind it, or in the one workspace that defines it.
pub fn scan(deps: &Deps, snapshot: &Snapshot, scope: &Scope, field: &Field, after: Option<&ObjectKey>) -> Page {
    let mut holders = Vec::new();
    let examined = rewrite::scan(deps, snapshot, scope, after, |served, entry| {
        holders.extend(served.and_then(|served| examine(served, entry, field)));
        true
    });
    Page {
        holders,
        examined: examined.objects,
        next: examined.next,
    }
}

fn examine(served: &Served, entry: &Entry, field: &Field) -> Option<Holder> {
    let value = entry.object.body_value();
    let stored = Stored {
        value: &value,
        version: entry.object.version(),
        residual: entry.object.residual(),
    };
    let retired = served.api.bundle.retire(stored, field.version.as_deref(), &field.path);
    let made = match retired.map_err(|error| error.to_string()) {
        Ok(None) => return None,
        // The object stays in the version in which it is stored, and moves to today's as others do.
        Ok(Some(made)) => match shows_otherwise(served, entry, (&value, &made)) {
            Some(version) => Err(format!("{version} shows what it holds: it stays")),
            None => rewrite::object(served, &made.value, made.residual),
        },
        Err(why) => Err(why),
    };
    let (failed, made) = match made {
        Ok(made) => (String::new(), Some(made)),
        Err(why) => (why, None),
    };
    let guards = served.guard.iter();
    let guards = guards.map(|(key, revision)| Intent::Expect(key.clone(), Some(*revision)));
    let writes = made.map(|made| Intent::Rewrite(entry.clone(), Arc::new(made)));
    Some(Holder {
        entry: entry.clone(),
        failed,
        intents: guards.chain(writes).collect(),
    })
}

/// Returns the first served version that would show an object otherwise after the removal.
fn shows_otherwise<'s>(served: &'s Served, entry: &Entry, (value, made): (&Json, &ToStore)) -> Option<&'s str> {
    let bundle = &served.api.bundle;
    let shown = |stored: Stored<'_>, version: &str| {
        let mut shown = bundle.get(stored, version, &mut object_budget(&served.meter)).ok()?;
        if let Some(schema) = bundle.schema(version) {
            insula_schema::prune(&mut shown, schema);
            insula_schema::default(&mut shown, schema);
        }
        Some(shown)
    };
    let before = Stored {
        value,
        version: entry.object.version(),
        residual: entry.object.residual(),
    };
    let after = made.stored(entry.object.version());
    let mut versions = bundle.served();
    // An object that cannot be shown now is hurt by no removal.
    versions.find(|version| shown(before, version).is_some_and(|was| shown(after, version) != Some(was)))
}

/// Takes what an object holds out of it, unless it was written since: then it is examined again.
/// Returns the object as it was found, with the reason if it was not possible.
///
/// # Errors
/// The store refused the commit, and not because of a conflict.
pub async fn apply(deps: &Deps, mut holder: Holder, field: &Field) -> Result<Holder> {
    for _ in 0..ATTEMPTS {
        if !holder.failed.is_empty() {
            return Ok(holder);
        }
        let intents = std::mem::take(&mut holder.intents);
        match rewrite::attempt(deps, &holder.entry.key.cluster, intents).await? {
            Attempt::Stored => return Ok(holder),
            Attempt::Refused(why) => {
                holder.failed = why;
                return Ok(holder);
            }
            Attempt::Conflict => {}
        }
        let now = rewrite::latest(deps, &holder.entry).await?;
        match now.and_then(|(served, entry)| examine(&served, &entry, field)) {
            Some(again) => holder = again,
            None => return Ok(holder),
        }
    }
    holder.failed = format!("it was written by others in {ATTEMPTS} attempts; try again");
    Ok(holder)
}
