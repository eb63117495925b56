//! Requests that a client begins, and may leave.

use std::{io::Write, net::TcpStream, sync::Arc};

use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

use crate::{Server, Who, tls};

/// Begins a POST over HTTP/1.1, without sending its body of some bytes.
///
/// # Panics
/// If the server cannot be reached.
pub fn begun(server: &Server, token: &str, path: &str, length: usize) -> StreamOwned<ClientConnection, TcpStream> {
    let mut config = tls(&server.data_dir(), &Who::Anonymous);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address()).unwrap());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.flush().unwrap();
    stream
}
