//! Faults, limits and attacks against the shipped binary, one file for each part of the server.

mod columns;
mod compute;
mod connections;
mod etcd;
pub(crate) mod grpc;
mod memory;
mod openapi;
mod pages;
mod policies;
mod restore;
mod searches;
mod storage;
mod store;
mod watches;
