//! Watches that stall, lag, or outlive the right to watch.
