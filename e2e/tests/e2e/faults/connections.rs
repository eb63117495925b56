//! Connections: shares of addresses, idle time, file descriptors, half-open peers.
