//! A proxy between a store and etcd that loses requests, answers or single messages.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// State of a wire to etcd.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Traffic {
    Open,
    /// Connections end, and new ones are refused.
    Cut,
    /// Requests arrive, answers do not.
    Mute,
    /// Requests are kept until the wire is open again, even if their sender has left; answers are
    /// lost.
    Held,
}

/// A proxy to etcd that loses requests or answers as a test wants.
pub(crate) struct Wire {
    pub(crate) endpoint: String,
    traffic: tokio::sync::watch::Sender<Traffic>,
    /// Bytes that are held back.
    held: Arc<Mutex<Vec<u8>>>,
    /// A text: the first message with it is lost on the way to the store.
    lost: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Wire {
    pub(crate) async fn to(endpoint: &str) -> Wire {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near_endpoint = format!("http://{}", listener.local_addr().unwrap());
        let target = endpoint.trim_start_matches("http://").to_owned();
        let (traffic, state) = tokio::sync::watch::channel(Traffic::Open);
        let held = Arc::new(Mutex::new(Vec::new()));
        let kept = held.clone();
        let lost = Arc::new(Mutex::new(None));
        let leaves_out = lost.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (target, state, kept) = (target.clone(), state.clone(), kept.clone());
                let lost = leaves_out.clone();
                tokio::spawn(async move {
                    if *state.borrow() == Traffic::Cut {
                        return;
                    }
                    if let Ok(far) = tokio::net::TcpStream::connect(target).await {
                        forward(near, far, state, &kept, &lost).await;
                    }
                });
            }
        });
        Wire {
            endpoint: near_endpoint,
            traffic,
            held,
            lost,
        }
    }

    pub(crate) fn holds(&self, part: &[u8]) -> bool {
        self.held.lock().unwrap().windows(part.len()).any(|bytes| bytes == part)
    }

    /// Loses the next message to the store that contains a text, and nothing else.
    pub(crate) fn lose(&self, part: &[u8]) {
        *self.lost.lock().unwrap() = Some(part.to_vec());
    }

    pub(crate) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }
}

async fn forward(
    near: tokio::net::TcpStream,
    far: tokio::net::TcpStream,
    mut state: tokio::sync::watch::Receiver<Traffic>,
    held: &Mutex<Vec<u8>>,
    lost: &Mutex<Option<Vec<u8>>>,
) {
    let ((mut near_read, mut near_write), (mut far_read, mut far_write)) = (near.into_split(), far.into_split());
    let mut ended = state.clone();
    let (requests, answers) = (state.clone(), state.clone());
    let forth = async {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = near_read.read(&mut buffer).await {
            let now = *requests.borrow();
            match now {
                Traffic::Held => held.lock().unwrap().extend_from_slice(&buffer[..count]),
                // Later bytes of the connection make no sense without the bytes that are held back.
                Traffic::Mute if !held.lock().unwrap().is_empty() => {}
                _ if far_write.write_all(&buffer[..count]).await.is_err() => return,
                _ => {}
            }
        }
        // The sender has disconnected. Its held bytes still arrive.
        if !held.lock().unwrap().is_empty() && state.wait_for(|now| *now == Traffic::Open).await.is_ok() {
            let late = std::mem::take(&mut *held.lock().unwrap());
            let _ = far_write.write_all(&late).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let back = async {
        let mut buffer = vec![0; 1 << 16];
        let mut frames = Vec::new();
        while let Ok(count @ 1..) = far_read.read(&mut buffer).await {
            let open = *answers.borrow() == Traffic::Open;
            frames.extend_from_slice(&buffer[..count]);
            let passed = whole_frames(&mut frames, &mut lost.lock().unwrap());
            // The end of the sender is no reason to stop: some of its bytes may be held back.
            let _ = if open {
                near_write.write_all(&passed).await
            } else {
                Ok(())
            };
        }
    };
    tokio::select! {
        () = forth => {}
        () = back => {}
        _ = ended.wait_for(|now| *now == Traffic::Cut) => {}
    }
}

/// Bytes of the header of a frame of HTTP/2: a length of 24 bits, type, flags, stream.
const HEADER: usize = 9;
const DATA: u8 = 0;

/// Takes the whole frames of HTTP/2 from what has arrived, without the first one of data that
/// contains the text. etcd sends a message that is small in a frame of its own.
fn whole_frames(arrived: &mut Vec<u8>, lost: &mut Option<Vec<u8>>) -> Vec<u8> {
    let mut passed = Vec::new();
    while let [a, b, c, kind, ..] = arrived[..] {
        let length = HEADER + u32::from_be_bytes([0, a, b, c]) as usize;
        if arrived.len() < length {
            break;
        }
        let frame: Vec<u8> = arrived.drain(..length).collect();
        let contains = |part: &Vec<u8>| frame.windows(part.len()).any(|bytes| bytes == part);
        match lost.take_if(|part| kind == DATA && contains(part)) {
            Some(_) => {}
            None => passed.extend(frame),
        }
    }
    passed
}
