//! Names of workspaces, hosts and tokens that answers and logs must not tell.
