//! Reads of one value that callers share: one read serves all that wait for it.
//!
//! By example, with one read in flight: a calls → read 1 is sent; b and c call → both wait for
//! read 2, since read 1 may have passed etcd before their calls; read 1 ends → a has its value,
//! read 2 is sent; d calls → waits for read 3; read 2 ends → b and c have the same value.

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use tokio::sync::Semaphore;

/// A read that several callers wait for. It goes on while one of them polls it.
type Read<T> = Shared<BoxFuture<'static, T>>;

/// Reads that are in flight, and the one that is sent next.
pub(crate) struct SharedReads<T: Clone> {
    in_flight: Arc<Semaphore>,
    /// The read that was not sent yet.
    next: Arc<Mutex<Option<Read<T>>>>,
}

impl<T: Clone + Send + Sync + 'static> SharedReads<T> {
    /// Returns no reads yet, of which `in_flight_max` may be in flight at a time.
    pub(crate) fn new(in_flight_max: usize) -> Self {
        SharedReads {
            in_flight: Arc::new(Semaphore::new(in_flight_max)),
            next: Arc::default(),
        }
    }

    /// Returns the next read that is sent after this call: `read`, unless one waits already.
    pub(crate) fn join<R>(&self, read: impl FnOnce() -> R + Send + 'static) -> Read<T>
    where
        R: Future<Output = T> + Send,
    {
        let mut next = self.next.lock();
        if let Some(read) = &*next {
            return read.clone();
        }
        let in_flight = self.in_flight.clone();
        let waiting: Weak<_> = Arc::downgrade(&self.next);
        let made = async move {
            // The semaphore is never closed.
            let _permit = in_flight.acquire_owned().await;
            // From here on a call needs another read.
            if let Some(next) = waiting.upgrade() {
                next.lock().take();
            }
            read().await
        };
        let made = made.boxed().shared();
        *next = Some(made.clone());
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::sync::{mpsc, oneshot};

    /// Reads that a test answers, each with its number.
    struct Source {
        reads: SharedReads<u64>,
        sent: mpsc::UnboundedSender<oneshot::Sender<()>>,
        number: Arc<AtomicU64>,
    }

    impl Source {
        fn new(in_flight_max: usize) -> (Self, mpsc::UnboundedReceiver<oneshot::Sender<()>>) {
            let (sent, receiver) = mpsc::unbounded_channel();
            let source = Source {
                reads: SharedReads::new(in_flight_max),
                sent,
                number: Arc::default(),
            };
            (source, receiver)
        }

        fn call(&self) -> Read<u64> {
            let (sent, number) = (self.sent.clone(), self.number.clone());
            self.reads.join(move || {
                let number = number.fetch_add(1, Ordering::Relaxed) + 1;
                let (answer, answered) = oneshot::channel();
                sent.send(answer).expect("the test goes on");
                async move {
                    answered.await.expect("the test answers");
                    number
                }
            })
        }
    }

    #[tokio::test]
    async fn a_caller_gets_a_read_that_was_sent_after_the_call() {
        let (source, mut sent) = Source::new(1);
        let mut a = source.call();
        assert!((&mut a).now_or_never().is_none(), "it is sent, and not answered");
        let first = sent.recv().await.expect("sent");
        let (mut b, mut c) = (source.call(), source.call());
        assert!((&mut b).now_or_never().is_none() && (&mut c).now_or_never().is_none());
        assert!(sent.try_recv().is_err(), "one is in flight at a time");
        first.send(()).expect("a waits");
        assert_eq!(a.await, 1);
        assert!((&mut b).now_or_never().is_none(), "it is sent now");
        let second = sent.recv().await.expect("sent");
        let mut d = source.call();
        second.send(()).expect("b and c wait");
        assert_eq!((b.await, c.await), (2, 2));
        assert!((&mut d).now_or_never().is_none());
        sent.recv().await.expect("sent").send(()).expect("d waits");
        assert_eq!(d.await, 3);
    }

    #[tokio::test]
    async fn callers_that_leave_hold_nothing_up() {
        let (source, mut sent) = Source::new(1);
        let mut in_flight = source.call();
        assert!((&mut in_flight).now_or_never().is_none());
        let mut waiting = source.call();
        assert!((&mut waiting).now_or_never().is_none());
        drop((in_flight, waiting));
        let mut later = source.call();
        assert!((&mut later).now_or_never().is_none());
        // That of the caller who left was received first, and nobody waits for its answer.
        drop(sent.recv().await);
        sent.recv().await.expect("sent").send(()).expect("it waits");
        assert_eq!(later.await, 2);
    }
}
