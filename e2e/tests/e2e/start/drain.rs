//! Requests over open connections while the server ends.

use std::{io, net::TcpStream, time::Duration};

use insula_e2e::{Http1, Server, Who, until};

/// Requests over open HTTP/1.1 connections are answered, whenever they come: before, while and
/// after the server stops to accept connections. The answer announces that the connection closes.
#[test]
fn no_request_on_an_open_connection_is_lost_at_the_end() {
    let server = Server::start();
    server.admin().get("/readyz").expect(200);
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let mut connection = Http1::connect(&server, &Who::KcpAdmin).unwrap();
            std::thread::spawn(move || {
                for count in 0_usize.. {
                    let (code, closes) = connection.get_and_end("/version").map_err(|error| (count, error))?;
                    assert_eq!(code, 200);
                    if closes {
                        return Ok(count);
                    }
                }
                unreachable!("it is asked until the server ends")
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    // This one is silent when the server begins to close.
    let mut late = Http1::connect(&server, &Who::KcpAdmin).unwrap();
    assert_eq!(late.get_and_end("/version").unwrap(), (200, false));
    server.signal("-TERM");
    let address = server.address().to_owned();
    until("no connection is accepted", || {
        TcpStream::connect(&address).is_err().then_some(())
    });
    assert_eq!(late.get_and_end("/version").unwrap(), (200, true));
    let asked: Vec<Result<usize, (usize, io::Error)>> =
        asking.into_iter().map(|asking| asking.join().unwrap()).collect();
    assert!(
        asked.iter().all(|asked| asked.as_ref().is_ok_and(|count| *count > 0)),
        "{asked:?}"
    );
    assert_eq!(server.wait().0, Some(0));
}
