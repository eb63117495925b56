//! Limits of connections.

use std::time::Duration;

/// Limits of connections.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Open connections.
    pub connections: usize,
    /// Open connections of one address that have not shown a credential yet.
    pub per_address: usize,
    /// Time for which a connection may be idle.
    pub idle: Duration,
    /// Time in which a client sends the headers of a request, and finishes a TLS handshake.
    pub headers: Duration,
    /// Time in which a client has to read some of a waiting answer.
    pub stall: Duration,
    /// Bytes of the headers of a request.
    pub header_bytes: u32,
    /// Concurrent HTTP/2 streams of one connection.
    pub streams: u32,
}

#[cfg(test)]
impl ConnectionLimits {
    pub(super) fn of_test(connections: usize, per_address: usize) -> Self {
        ConnectionLimits {
            connections,
            per_address,
            idle: Duration::from_secs(60),
            headers: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            header_bytes: 16 << 10,
            streams: 100,
        }
    }
}
