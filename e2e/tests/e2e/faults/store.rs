//! Damage to the files of the embedded store, and full disks.
