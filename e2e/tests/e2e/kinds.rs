//! kcp's kinds in kcp's shapes.

scripts!("kinds":
    clusters, defaults, direct, home, initializers, life, marks, population, refusals, routes,
    schemas, topology, types, versions
);
