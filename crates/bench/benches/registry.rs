//! The verbs, without a network: a bound kind in two versions that differ by ten rules, one of them
//! CEL.

use divan::Bencher;
use futures_util::FutureExt;
use insula_access::Target;
use insula_api::Json;
use insula_auth::UserInfo;
use insula_bench::fixtures::{MOVES, Tenant, widget};
use insula_meter::ServerWork;
use insula_registry::{
    FieldValidation, ListOptions, SentKeys, WriteOptions,
    representation::{Cache, Show},
    verbs,
};
use insula_store::{Entry, MemoryStore};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::runtime::{Builder, Runtime};

const OBJECTS: u64 = 10_000;

fn main() {
    divan::main();
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

fn object(n: u64, version: &str) -> Json {
    widget(&format!("widget-{n:08}"), version, MOVES)
}

async fn create(tenant: &Tenant, target: &Target, user: &UserInfo, body: Json) {
    let options = WriteOptions {
        user,
        dry_run: false,
        field_validation: FieldValidation::Warn,
        body_bytes: 0,
        keys: SentKeys::default(),
        manager: String::new(),
        record: insula_auth::audit::Record::default(),
    };
    verbs::create(&tenant.registry, target, body, &options)
        .await
        .expect("creates");
}

fn filled(runtime: &Runtime, objects: u64) -> Tenant {
    runtime.block_on(async {
        let tenant = Tenant::new(Arc::new(MemoryStore::new())).await;
        let (target, user) = (tenant.target("v1"), user());
        for n in 0..objects {
            create(&tenant, &target, &user, object(n, "v1")).await;
        }
        tenant
    })
}

fn user() -> UserInfo {
    UserInfo::authenticated("kcp-admin", "", vec!["system:masters".to_owned()])
}

/// From a parsed body to an applied commit, in memory.
#[divan::bench(args = ["v1", "v2"])]
fn create_2_kb(bencher: Bencher<'_, '_>, version: &str) {
    let (runtime, next, user) = (runtime(), AtomicU64::new(0), user());
    let tenant = filled(&runtime, 0);
    let target = tenant.target(version);
    bencher
        .with_inputs(|| object(next.fetch_add(1, Ordering::Relaxed), version))
        .bench_local_values(|body| runtime.block_on(create(&tenant, &target, &user, body)));
}

/// A read as bytes; `v2` was converted before and comes from the cache.
#[divan::bench(args = ["v1", "v2"])]
fn get_as_bytes(bencher: Bencher<'_, '_>, version: &str) {
    let tenant = filled(&runtime(), 100);
    let target = tenant.target(version);
    let mut out = Vec::new();
    bencher.bench_local(|| {
        out.clear();
        let snapshot = tenant.registry.store.latest().for_server(ServerWork::Tool);
        let entry = verbs::get(&tenant.registry, &snapshot, &target, "widget-00000050").expect("is there");
        show(&tenant.registry.cache, &target, &entry, &mut out);
        out.len()
    });
}

/// The first read in the other version.
#[divan::bench]
fn get_as_bytes_converted_cold(bencher: Bencher<'_, '_>) {
    let tenant = filled(&runtime(), 1);
    let target = tenant.target("v2");
    let snapshot = tenant.registry.store.latest().for_server(ServerWork::Tool);
    let entry = verbs::get(&tenant.registry, &snapshot, &target, "widget-00000000").expect("is there");
    bencher.with_inputs(Arc::<Cache>::default).bench_local_values(|cache| {
        let mut out = Vec::new();
        show(&cache, &target, &entry, &mut out);
        (cache, out)
    });
}

fn list(tenant: &Tenant, target: &Target, limit: usize) -> Vec<u8> {
    let options = ListOptions {
        limit,
        ..ListOptions::default()
    };
    let snapshot = tenant.registry.store.latest().for_server(ServerWork::Tool);
    let page = now(verbs::list(&tenant.registry, &snapshot, target, &options)).expect("lists");
    let mut out = Vec::with_capacity(page.entries.len() * 3_500);
    let mut shown = Show::new(&tenant.registry.cache, target, page.entries.iter());
    for _ in &page.entries {
        now(shown.append(&mut out)).expect("shows");
    }
    out
}

fn show(cache: &Arc<Cache>, target: &Target, entry: &Entry, out: &mut Vec<u8>) {
    let mut shown = Show::new(cache, target, std::iter::once(entry));
    now(shown.append(out)).expect("shows");
}

/// Runs a future that never waits, since there are no workers.
fn now<F: Future>(future: F) -> F::Output {
    future.now_or_never().expect("at once")
}

/// 10,000 × 2 kB as bytes; `v2` from the cache.
#[divan::bench(args = ["v1", "v2"], sample_count = 20)]
fn list_10_000_as_bytes(bencher: Bencher<'_, '_>, version: &str) {
    let tenant = filled(&runtime(), OBJECTS);
    let target = tenant.target(version);
    list(&tenant, &target, 0);
    bencher.bench_local(|| list(&tenant, &target, 0));
}

/// A page of 500 out of 10,000.
#[divan::bench(args = ["v1", "v2"], sample_count = 50)]
fn page_of_500_as_bytes(bencher: Bencher<'_, '_>, version: &str) {
    let tenant = filled(&runtime(), OBJECTS);
    let target = tenant.target(version);
    list(&tenant, &target, 500);
    bencher.bench_local(|| list(&tenant, &target, 500));
}

/// The first list in the other version.
#[divan::bench(sample_count = 10)]
fn list_10_000_converted_cold(bencher: Bencher<'_, '_>) {
    let mut tenant = filled(&runtime(), OBJECTS);
    let target = tenant.target("v2");
    bencher.bench_local(|| {
        tenant.registry.cache = Arc::default();
        list(&tenant, &target, 0)
    });
}
