//! The edge: who may send how much, the same for every protocol. It knows no object.

pub mod guard;
