//! The binding reconciler, seen by tenants.

scripts!("binding": answers, lifecycle, losses, missing, conflicts, offers, rebind, rules);
