//! kcp's kinds in kcp's shapes.

stories!("kinds": home, life, refusals, versions);
