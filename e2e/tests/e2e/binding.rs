//! The binding reconciler, seen by tenants.

stories!("binding": lifecycle, missing, conflicts, rebind, rules);
