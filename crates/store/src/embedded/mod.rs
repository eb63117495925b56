//! The durable engine in one file.
