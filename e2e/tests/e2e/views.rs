//! What providers see of their consumers: by requests, with kubectl, and a controller of kube-rs.

mod controller;

stories!("views": claims, kubectl, others, provider, kinds, refusals, reviews, schemas);
