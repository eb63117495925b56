//! Virtual workspaces of providers, with the objects of their consumers: by requests, with kubectl,
//! and a controller of kube-rs.

mod controller;

scripts!("views": claims, kubectl, others, provider, kinds, refusals, reviews, schemas);
