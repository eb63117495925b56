//! Tests of generated names and of retries.

use super::*;
use crate::{
    deps::Deps,
    representation::tests::{served, target, workspace},
};
use futures_util::FutureExt;
use insula_api::{Json, Revision, Rng};
use insula_auth::{UserInfo, audit::Record};
use insula_catalog::{Error, Part, ids};
use insula_store::MemoryStore;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;

/// A generator that returns the same name a given number of times.
struct Stubborn(Mutex<usize>);

impl Rng for Stubborn {
    fn fill(&self, buffer: &mut [u8]) {
        let mut left = self.0.lock();
        let is_name = buffer.len() == 8;
        buffer.fill(if *left > 0 || !is_name { 7 } else { 8 });
        *left -= usize::from(is_name && *left > 0);
    }
}

fn options(user: &UserInfo) -> WriteOptions<'_> {
    WriteOptions {
        user,
        dry_run: false,
        field_validation: FieldValidation::Warn,
        duplicates: Vec::new(),
        manager: "test".into(),
        record: Record::default(),
    }
}

/// Creates an object whose generated name is taken `taken` times, and returns its name or the
/// error.
fn made(taken: usize) -> std::result::Result<String, Error> {
    let mut deps = workspace(Arc::new(MemoryStore::new()), "one");
    let target = target(&served(), "one");
    let user = UserInfo::authenticated("alice", "", Vec::new());
    let options = options(&user);
    let body = json!({"apiVersion": "example.io/v2", "kind": "Engine", "metadata": {"generateName": "a-"}});
    let create_one = |deps: &Deps| {
        let created = create(deps, &target, body.clone(), &options).now_or_never();
        let created = created.expect("at once");
        created.map(|written| written.entry.key.name.to_string())
    };
    let first = create_one(&deps).expect("is free");
    deps.rng = Arc::new(Stubborn(Mutex::new(taken)));
    create_one(&deps).inspect(|name| assert_ne!(*name, first))
}

#[test]
fn eight_names_are_tried() {
    let name = made(7).expect("the eighth is free");
    let random = name.strip_prefix("a-").expect("begins as it was told");
    let letters = |c: char| "bcdfghjklmnpqrstvwxz2456789".contains(c);
    assert!(random.len() == 5 && random.chars().all(letters), "{name}");
    assert!(matches!(made(8), Err(Error::NoFreeName { .. })));
}

#[test]
fn a_conflict_on_the_route_is_not_tried_again() {
    let deps = workspace(Arc::new(MemoryStore::new()), "one");
    let mut target = target(&served(), "one");
    let user = UserInfo::authenticated("alice", "", Vec::new());
    let options = options(&user);
    let body = json!({"apiVersion": "example.io/v2", "kind": "Engine", "metadata": {"name": "a"}});
    let created = create(&deps, &target, body, &options).now_or_never();
    created.expect("at once").expect("the name is free");
    // The route that the request was resolved by is not as it was.
    let route = ids::claim(&target.cluster, "example.io", "engines");
    target.served.guard = Some((route, Revision(1)));
    let attempts = Mutex::new(0);
    let patch = |old: &Json| {
        *attempts.lock() += 1;
        let mut new = old.clone();
        new["spec"] = json!({"padding": "x"});
        Ok(new)
    };
    let change = Change::Patch(&patch);
    let refused = update(&deps, &target, "a", change, Part::Main, &options).now_or_never();
    assert!(matches!(refused.expect("at once"), Err(Error::Conflict { .. })));
    assert_eq!(*attempts.lock(), 1);
}
