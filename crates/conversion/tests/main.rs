//! One program of all integration tests: each file by itself would link everything once more.
#![allow(clippy::unwrap_used)]

mod acceptance;
mod all_findings;
mod compatible;
mod field_coverage;
mod fitting;
mod forms;
mod fuzz;
mod generated;
mod laws;
mod portable;
mod price;
mod proof;
mod readers;
mod recompute;
mod releases;
mod renamed_away;
mod retained;
mod returning;
mod retyped;
mod samples;
mod shapes;
mod shared;
mod shared_lists;
mod suggest;
mod suggest_evidence;
mod suggest_price;
mod suggest_published;
mod support;
mod weak_points;
