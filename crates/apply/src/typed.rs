//! Operations on objects by their schema: their fields ([`fields_of`]), their differences
//! ([`compare`]), their merge ([`merge`]), and removal of fields ([`remove`]).
//!
//! The rules are those of structured-merge-diff: atomic lists and maps are one value; items of sets
//! and keyed lists, and entries of maps, are fields of their own.

mod compare;
mod items;
mod merge;
mod nulls;
mod reconcile;
mod remove;
mod sets;
mod shape;
mod validate;

pub(crate) use compare::{Comparison, compare};
pub(crate) use merge::merge;
pub(crate) use nulls::set_nulls;
pub(crate) use reconcile::reconcile;
pub(crate) use remove::remove;
pub(crate) use sets::{fields_of, with_named};
pub use shape::Shape;
pub(crate) use validate::validate;
