//! The edge: the port with its connections, and who may send how much, the same for every protocol.
//! It knows no object.

pub mod guard;
pub mod port;
