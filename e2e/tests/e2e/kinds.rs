//! kcp's kinds in kcp's shapes.

stories!("kinds": home, initializers, life, population, refusals, versions);
