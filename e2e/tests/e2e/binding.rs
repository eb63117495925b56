//! The binding reconciler, seen by tenants.

stories!("binding": answers, lifecycle, losses, missing, conflicts, offers, rebind, rules);
