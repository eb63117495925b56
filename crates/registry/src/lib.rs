//! The registry: the verbs of the Kubernetes API on the resources that each cluster serves.
//!
//! The path of a write: [`verbs`] read one snapshot, `prepare` brings the object into its storage
//! version, `insula_admission` checks it, and the store commits it under guards for everything that
//! the decision read. Every edge (HTTP, virtual workspaces, gRPC, controllers) calls this crate.

mod built_in_rbac;
pub mod calls;
mod client;
mod context;
mod deps;
mod draft;
mod ended;
pub mod freeze;
pub mod grace;
mod heavy;
pub mod home;
pub mod homes;
mod in_force;
mod metadata;
mod metadata_only;
pub mod metering;
pub mod migrate;
mod owners;
mod platform_annotations;
mod prepare;
pub mod recompute;
pub mod registration_migration;
pub mod representation;
pub mod retire;
pub mod rewrite;
pub mod servers;
pub mod undelete;
mod unruled;
mod uses;
pub mod verbs;

pub use client::{Intent, Plan, commit};
pub use deps::{Deps, ExtensionTrust, Trust};
pub use heavy::HeavyWork;
pub use in_force::until_in_force;
pub use insula_admission::storage_limit::StorageLimits;
pub use metadata::{FOREGROUND, ORPHAN};
pub use platform_annotations::set_annotations;
pub use servers::Team;
pub use uses::store_uses;
pub use verbs::{
    Change, Configured, DeleteOptions, Deleted, Deletion, Event, FieldValidation, IfAbsent, List, ListOptions, Patch,
    Preconditions, Propagation, Repeated, SentKeys, VisitKeys, Watch, WatchOptions, WriteOptions, Written,
    mark_deleted,
};
