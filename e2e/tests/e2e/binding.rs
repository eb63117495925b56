//! The binding reconciler, seen by tenants.

stories!("binding": answers, lifecycle, missing, conflicts, offers, rebind, rules);
