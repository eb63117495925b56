//! One program of all integration tests: each file by itself would link everything once more.

mod compatibility;
mod documents;
mod extensions;
mod floors;
mod modules;
mod site;
mod tidy;
