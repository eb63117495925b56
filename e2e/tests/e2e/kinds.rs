//! kcp's kinds in kcp's shapes.

stories!("kinds": life, refusals, versions);
