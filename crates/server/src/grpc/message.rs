//! Limits of gRPC messages: their size, their bytes in flight and their pauses.
//!
//! A message counts from its first byte until its call is answered, since its decoded form is many
//! times as large: an empty value in a list takes two bytes, and sixteen times that in memory.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

/// Bytes of the prefix with the length of a message.
const PREFIX_BYTES: usize = 5;
/// Bytes in flight of one caller, as a multiple of the largest message.
const PER_CALLER: usize = 2;
/// Bytes in flight of all callers, as a multiple of the largest message.
const ALL: usize = 8;
/// Milliseconds after which a caller over these limits may retry.
const PUSHBACK_MILLISECONDS: u64 = 1_000;

/// Bytes of the messages that are being received or processed.
pub(crate) struct MessageBytes {
    largest: usize,
    in_flight: Mutex<BytesInFlight>,
    gauge: Gauge<i64, AtomicI64>,
}

#[derive(Default)]
struct BytesInFlight {
    all: usize,
    callers: HashMap<Arc<str>, usize>,
}

/// Bytes of one call, released when it is dropped.
pub(super) struct CallBytes {
    total: Arc<MessageBytes>,
    caller: Arc<str>,
    bytes: AtomicUsize,
}

impl MessageBytes {
    /// Creates an empty count. `largest` is the limit of one message in bytes.
    pub(crate) fn new(largest: usize, gauge: Gauge<i64, AtomicI64>) -> Self {
        MessageBytes {
            largest,
            in_flight: Mutex::default(),
            gauge,
        }
    }

    /// Returns the count of a new call of a caller.
    pub(super) fn for_caller(self: &Arc<Self>, caller: &Arc<str>) -> Arc<CallBytes> {
        Arc::new(CallBytes {
            total: Arc::clone(self),
            caller: Arc::clone(caller),
            bytes: AtomicUsize::new(0),
        })
    }

    fn in_flight(&self) -> MutexGuard<'_, BytesInFlight> {
        // The data is consistent between any two statements, even after a panic.
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, caller: &Arc<str>, bytes: usize) -> Result<(), Status> {
        let mut in_flight = self.in_flight();
        let own = in_flight.callers.get(caller).copied().unwrap_or_default() + bytes;
        let (most, whose) = match (
            own > PER_CALLER * self.largest,
            in_flight.all + bytes > ALL * self.largest,
        ) {
            (true, _) => (PER_CALLER * self.largest, "the user's"),
            (false, true) => (ALL * self.largest, "all"),
            (false, false) => {
                in_flight.all += bytes;
                in_flight.callers.insert(Arc::clone(caller), own);
                self.gauge.set(i64::try_from(in_flight.all).unwrap_or(i64::MAX));
                return Ok(());
            }
        };
        let text = format!("{whose} messages that are being received have {most} bytes, and may have no more");
        let mut refusal = Status::resource_exhausted(text);
        let metadata = refusal.metadata_mut();
        metadata.insert("grpc-retry-pushback-ms", PUSHBACK_MILLISECONDS.into());
        Err(refusal)
    }

    fn give_back(&self, caller: &Arc<str>, bytes: usize) {
        let mut in_flight = self.in_flight();
        in_flight.all -= bytes;
        if let Some(own) = in_flight.callers.get_mut(caller) {
            *own -= bytes;
            if *own == 0 {
                in_flight.callers.remove(caller);
            }
        }
        self.gauge.set(i64::try_from(in_flight.all).unwrap_or(i64::MAX));
    }
}

impl CallBytes {
    fn add(&self, bytes: usize) -> Result<(), Status> {
        self.total.add(&self.caller, bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for CallBytes {
    fn drop(&mut self) {
        let bytes = std::mem::take(self.bytes.get_mut());
        if bytes > 0 {
            self.total.give_back(&self.caller, bytes);
        }
    }
}

/// Messages of a call, with a limit of their bytes and of the pauses between them.
pub(super) struct Message {
    body: Body,
    /// Bytes of one message at most.
    most: usize,
    lengths: Lengths,
    left: usize,
    stall: Duration,
    late: Pin<Box<Sleep>>,
    counted: Option<Arc<CallBytes>>,
}

impl Message {
    /// Limits the body of a call to `most` bytes without a pause of `stall`. The bytes of
    /// authenticated callers are counted.
    pub(super) fn new(body: Body, most: usize, stall: Duration, counted: Option<Arc<CallBytes>>) -> Self {
        Message {
            body,
            most,
            lengths: Lengths::default(),
            left: most + PREFIX_BYTES,
            stall,
            late: Box::pin(sleep(stall)),
            counted,
        }
    }

    /// Limits the pauses of a request with a stream of messages of at most `most` bytes each. One
    /// of them is in memory at a time, and is counted until the call ends; the service limits them
    /// together.
    pub(super) fn of_upload(
        request: Request<Body>,
        most: usize,
        stall: Duration,
        counted: Option<Arc<CallBytes>>,
    ) -> Result<Request<Body>, Status> {
        if let Some(counted) = &counted {
            counted.add(most + PREFIX_BYTES)?;
        }
        Ok(request.map(|body| {
            let message = Message {
                body,
                most,
                lengths: Lengths::default(),
                left: usize::MAX,
                stall,
                late: Box::pin(sleep(stall)),
                counted: None,
            };
            Body::new(Reserved {
                message,
                _counted: counted,
            })
        }))
    }

    /// Counts a piece of a message.
    fn take(&mut self, piece: &[u8]) -> Result<(), Status> {
        let (bytes, most) = (piece.len(), self.most);
        if let Some(length) = self.lengths.read(piece).filter(|length| *length > most) {
            let text = format!("the message has {length} bytes; one to this method has {most} bytes at most");
            return Err(Status::resource_exhausted(text));
        }
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| {
            let text = format!("the call's messages have more than {most} bytes together");
            Status::resource_exhausted(text)
        })?;
        if let Some(counted) = &self.counted {
            counted.add(bytes)?;
        }
        let end = Instant::now() + self.stall;
        self.late.as_mut().reset(end);
        Ok(())
    }
}

/// Lengths of messages in their prefixes: a byte that tells about compression, and four bytes with
/// the length.
#[derive(Default)]
struct Lengths {
    /// Bytes of the prefix that came so far.
    prefix: Vec<u8>,
    /// Bytes of the message that come yet.
    rest: usize,
}

impl Lengths {
    /// Reads a piece of the messages. Returns the largest length that it completes.
    fn read(&mut self, mut piece: &[u8]) -> Option<usize> {
        let mut largest = None;
        while !piece.is_empty() {
            let of_message = piece.split_at(self.rest.min(piece.len()));
            self.rest -= of_message.0.len();
            let missing = PREFIX_BYTES - self.prefix.len();
            let of_prefix = of_message.1.split_at(missing.min(of_message.1.len()));
            self.prefix.extend_from_slice(of_prefix.0);
            piece = of_prefix.1;
            if let [_, length @ ..] = &*self.prefix
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.prefix.clear();
                self.rest = length;
                largest = largest.max(Some(length));
            }
        }
        largest
    }
}

/// A stream of messages, with the bytes that are counted for it.
struct Reserved {
    message: Message,
    _counted: Option<Arc<CallBytes>>,
}

impl HttpBody for Reserved {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.message).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_end_stream()
    }
}

impl HttpBody for Message {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let taken = self.take(frame.data_ref().map_or(&[], |data| data));
                Poll::Ready(Some(taken.map(|()| frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(Status::cancelled(error.to_string())))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.late.as_mut().poll(context).map(|()| {
                let seconds = self.stall.as_secs();
                let text = format!("nothing of the call's messages came for {seconds} seconds");
                Some(Err(Status::deadline_exceeded(text)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &CallBytes, more: usize) -> bool {
        let Err(refusal) = bytes.add(more) else { return false };
        assert_eq!(refusal.code(), tonic::Code::ResourceExhausted);
        assert_eq!(
            refusal.metadata().get("grpc-retry-pushback-ms").expect("a time"),
            "1000"
        );
        true
    }

    #[test]
    fn lengths_are_read_wherever_the_messages_are_cut() {
        let message = |length: u8| [&[0, 0, 0, 0, length][..], &vec![7; length.into()]].concat();
        let stream = [message(3), message(0), message(200), message(1)].concat();
        for size in 1..=stream.len() {
            let mut lengths = Lengths::default();
            let found: Vec<usize> = stream.chunks(size).filter_map(|piece| lengths.read(piece)).collect();
            assert_eq!(found.iter().max(), Some(&200), "{size}");
            assert_eq!((lengths.rest, lengths.prefix.len()), (0, 0), "{size}");
        }
        let mut lengths = Lengths::default();
        assert_eq!(lengths.read(&[0, 0xff, 0xff]), None);
        assert_eq!(lengths.read(&[0xff, 0xff]), Some(u32::MAX as usize));
    }

    #[test]
    fn messages_are_counted_by_caller_and_together_until_their_calls_end() {
        let gauge = Gauge::default();
        let all = Arc::new(MessageBytes::new(10, gauge.clone()));
        let call = |who: &str| all.for_caller(&who.into());
        let (first, second) = (call("a"), call("a"));
        first.add(10).expect("it fits");
        second.add(10).expect("it fits");
        assert!(refused(&second, 1), "a caller has two of the largest messages");
        let others: Vec<_> = (0..6).map(|n| call(&n.to_string())).collect();
        for other in &others {
            other.add(10).expect("it fits");
        }
        assert!(refused(&call("b"), 1), "all callers have eight of them");
        assert_eq!(gauge.get(), 80);
        drop(first);
        call("b").add(1).expect("it fits again");
        second.add(10).expect("it fits again");
        drop((second, others));
        assert_eq!(gauge.get(), 0);
        assert!(all.in_flight().callers.is_empty());
    }
}
