//! The store as a map, to compare engines with.
