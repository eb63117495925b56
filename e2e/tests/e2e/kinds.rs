//! kcp's kinds in kcp's shapes.

stories!("kinds": clusters, defaults, direct, home, initializers, life, marks, population, refusals, routes, schemas, topology, types, versions);
