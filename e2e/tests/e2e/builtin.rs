//! Kubernetes' own kinds that every workspace has.

stories!("builtin": events);
