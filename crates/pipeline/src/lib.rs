//! The way of a request between the edge and the verbs: its limits, and everything that is answered
//! instead of done. Nothing here knows a wire format: each face has one `match` for refusals
//! (`insula_apiserver::status`, `insula_admin::status`).

pub mod fair_share;
pub mod limits;
mod refusal;

pub use refusal::{Clusters, Forbidden, Limit, Refusal};
