//! Tests of the shipped binary from outside, one file for each promise. They are one program, so
//! that it is linked once and its tests share a server.
#![allow(clippy::unwrap_used)]

/// Defines a test for each script of a group, and the list of the group.
macro_rules! scripts {
    ($group:literal: $($name:ident),* $(,)?) => {
        pub(crate) const SCRIPTS: &[&str] = &[$(concat!($group, "/", stringify!($name))),*];
        $(#[test]
        fn $name() {
            insula_e2e::run_script(concat!($group, "/", stringify!($name)));
        })*
    };
}

mod access;
mod aggregation;
mod any_order;
mod appliers;
mod audit;
mod binding;
mod boot;
mod builtin;
mod cli;
mod clients;
mod console;
mod conversion;
mod definitions;
mod docs;
mod earlier_homes;
mod earlier_names;
mod effects;
mod external;
mod faults;
mod five_releases;
mod golden;
mod grpc;
mod histories;
mod hooks;
mod incompatible;
mod interrupted;
mod issuers;
mod kinds;
mod kube_rs;
mod kubeconfigs;
mod kubectl;
mod kubectls;
mod life;
mod limits;
mod migrate;
mod one_rule;
mod packaging;
mod parts;
mod patterns;
mod policies;
mod price;
mod providers;
mod published;
mod recompute;
mod releases;
mod retained;
mod retirement;
mod rule_effects;
mod samples;
mod secure;
mod serving;
mod slots;
mod start;
mod store;
mod telemetry;
mod tenant_isolation;
mod thirdparty;
mod tools;
mod traces;
mod unbinding;
mod unreadable;
mod verdict;
mod views;
mod webhook;
mod wire;
mod workspaces;

#[test]
fn every_script_is_run() {
    let groups = [
        access::SCRIPTS,
        binding::SCRIPTS,
        conversion::SCRIPTS,
        kinds::SCRIPTS,
        kubectl::SCRIPTS,
        policies::SCRIPTS,
        serving::SCRIPTS,
        builtin::SCRIPTS,
        thirdparty::SCRIPTS,
        views::SCRIPTS,
    ];
    let mut run = groups.concat();
    run.sort_unstable();
    assert_eq!(run, insula_e2e::scripts_on_disk());
}
