//! Backup and restore of the embedded store.
