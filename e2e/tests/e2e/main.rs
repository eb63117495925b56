//! The shipped binary from outside, one file for each numbered promise. One program, so that it is
//! linked once and its tests share a server.
#![allow(clippy::unwrap_used)]

/// A test for each story, and the list of them.
macro_rules! stories {
    ($group:literal: $($name:ident),* $(,)?) => {
        pub(crate) const STORIES: &[&str] = &[$(concat!($group, "/", stringify!($name))),*];
        $(#[test]
        fn $name() {
            insula_e2e::story(concat!($group, "/", stringify!($name)));
        })*
    };
}

mod access;
mod audit;
mod binding;
mod builtin;
mod clients;
mod conversion;
mod definitions;
mod docs;
mod faults;
mod golden;
mod grpc;
mod hooks;
mod issuers;
mod kinds;
mod kube_rs;
mod kubectl;
mod life;
mod limits;
mod policies;
mod samples;
mod secure;
mod serving;
mod start;
mod store;
mod telemetry;
mod tenant_isolation;
mod tools;
mod unreadable;
mod views;
mod webhook;
mod wire;
mod workspaces;

#[test]
fn every_story_is_told() {
    let groups = [
        access::STORIES,
        binding::STORIES,
        conversion::STORIES,
        kinds::STORIES,
        kubectl::STORIES,
        policies::STORIES,
        serving::STORIES,
        builtin::STORIES,
        views::STORIES,
    ];
    let mut told = groups.concat();
    told.sort_unstable();
    assert_eq!(told, insula_e2e::scripts_on_disk());
}
