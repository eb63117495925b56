//! Reads at old revisions after rights were revoked.
