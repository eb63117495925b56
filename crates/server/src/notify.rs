//! Messages to the service manager in systemd's notification protocol: ready, stopping, and a sign
//! of life for its watchdog.
//!
//! The manager names a datagram socket in `NOTIFY_SOCKET`. Without that variable nothing is sent.

use std::{
    convert::Infallible,
    env, io,
    os::unix::net::{SocketAddr, UnixDatagram},
    time::Duration,
};

/// The service manager that started this process, if it wants messages.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    /// Time between two signs of life; `None` without a watchdog.
    interval: Option<Duration>,
}

impl Manager {
    /// Reads `NOTIFY_SOCKET`, and `WATCHDOG_USEC` unless `WATCHDOG_PID` is another process. A
    /// socket that cannot be used is a warning: the server runs without a manager as well.
    pub(crate) fn from_environment() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else {
            return Self::default();
        };
        let name = name.to_string_lossy();
        let socket = connect(&name)
            .inspect_err(|error| tracing::warn!(%error, socket = %name, "the service manager cannot be told"));
        let number = |variable: &str| env::var(variable).ok()?.parse::<u64>().ok();
        let of_another = number("WATCHDOG_PID").is_some_and(|process| process != u64::from(std::process::id()));
        let timeout = number("WATCHDOG_USEC").filter(|micros| *micros > 0 && !of_another);
        Self {
            socket: socket.ok(),
            interval: timeout.map(|micros| Duration::from_micros(micros / 2)),
        }
    }

    /// Reports that the server answers at `url`.
    pub(crate) fn ready(&self, url: &str) {
        self.send(&format!("READY=1\nSTATUS=Serving {url}"));
    }

    /// Reports that the server finishes its requests and stops.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Finishing requests");
    }

    /// Sends signs of life, two in the time that the watchdog allows, for as long as it is polled.
    pub(crate) async fn keep_alive(&self) -> Infallible {
        let Some(interval) = self.interval else {
            return std::future::pending().await;
        };
        loop {
            self.send("WATCHDOG=1");
            tokio::time::sleep(interval).await;
        }
    }

    fn send(&self, message: &str) {
        let sent = self.socket.as_ref().map(|socket| socket.send(message.as_bytes()));
        if let Some(Err(error)) = sent {
            tracing::warn!(%error, message, "the service manager cannot be told");
        }
    }
}

/// Connects to a socket by its path, or by its abstract name after `@`.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not stop the server.
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address(name)?)?;
    Ok(socket)
}

#[cfg(target_os = "linux")]
fn address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;

    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

#[cfg(not(target_os = "linux"))]
fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_pathname(name)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::linux::net::SocketAddrExt;

    use super::*;

    #[test]
    fn messages_reach_an_abstract_socket_and_a_silent_one_stops_nobody() {
        let name = format!("insula-notify-{}", std::process::id());
        let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let manager = Manager {
            socket: Some(connect(&format!("@{name}")).unwrap()),
            interval: None,
        };
        manager.ready("https://127.0.0.1:6443");
        let mut buffer = [0; 128];
        let length = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\nSTATUS=Serving https://127.0.0.1:6443");
        // More than a queue holds.
        for _ in 0..2_000 {
            manager.stopping();
        }
    }
}
