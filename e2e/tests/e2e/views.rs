//! What providers see of their consumers: by requests, with kubectl, and a controller of kube-rs.

stories!("views": claims, kubectl, provider, refusals);
