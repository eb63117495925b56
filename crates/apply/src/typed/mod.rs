//! Objects read by their schema: which of their fields are there ([`fields_of`]), what differs
//! between two ([`compare`]), one laid over another ([`merge`]), one without some of its fields
//! ([`remove`]).
//!
//! The rules are those of structured-merge-diff: lists and maps that are atomic are one value;
//! items of sets and keyed lists, and entries of maps, are fields of their own.

mod compare;
mod items;
mod merge;
mod reconcile;
mod remove;
mod sets;
mod shape;
mod validate;

pub(crate) use compare::{Comparison, compare};
pub(crate) use merge::merge;
pub(crate) use reconcile::reconcile;
pub(crate) use remove::remove;
pub(crate) use sets::{fields_of, with_named};
pub use shape::Shape;
pub(crate) use validate::validate;
