//! kcp's kinds in kcp's shapes.

stories!("kinds": clusters, home, initializers, life, population, refusals, routes, schemas, topology, types, versions);
