//! Bytes in flight: what the bodies of requests, and answers that are made as a whole, keep in
//! memory.
//!
//! A request holds its bytes from before they are read or made until the last byte of its answer is
//! sent. The user, the workspace and the server have a limit each. Whoever holds nothing else may
//! go beyond it: a list that is larger than a limit is answered, one at a time.

use super::{Book, Open};
use crate::status::{self, StatusReply};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// Less than this is not counted: the limits of requests bound how often it is there.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// The bytes that one request holds. Clones are of the same request; the last one gives the bytes
/// back.
#[derive(Clone, Default)]
pub(crate) struct Budget(Option<Arc<Request>>);

struct Request {
    server: Arc<Total>,
    /// The user's, and the workspace's where there is one.
    books: [Option<(Arc<Book>, Arc<str>)>; 2],
    held: Mutex<usize>,
}

/// The bytes of all requests.
pub(super) struct Total {
    most: usize,
    held: AtomicUsize,
}

impl Total {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Total {
            most,
            held: AtomicUsize::new(0),
        })
    }

    fn take(&self, own: usize, bytes: usize) -> Result<(), StatusReply> {
        let fits = |held: usize| (held <= own || held + bytes <= self.most).then_some(held + bytes);
        let taken = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        taken.map(drop).map_err(|_| refused("the server", self.most))
    }
}

impl Book {
    fn take_bytes(&self, name: &Arc<str>, own: usize, bytes: usize) -> Result<(), StatusReply> {
        let most = self.share.bytes;
        let mut open = self.open.entry(name.clone()).or_default();
        let Open { bytes: held, .. } = &mut *open;
        if *held > own && *held + bytes > most {
            return Err(refused(self.whose, most));
        }
        *held += bytes;
        Ok(())
    }

    fn give_back_bytes(&self, name: &Arc<str>, bytes: usize) {
        if let Some(mut open) = self.open.get_mut(name) {
            open.bytes -= bytes;
        }
    }
}

fn refused(whose: &str, most: usize) -> StatusReply {
    status::too_many_requests(&format!(
        "requests and answers of {whose} hold {most} bytes, and may hold no more at once"
    ))
}

impl Budget {
    pub(super) fn new(server: &Arc<Total>, books: [Option<(Arc<Book>, Arc<str>)>; 2]) -> Self {
        Budget(Some(Arc::new(Request {
            server: server.clone(),
            books,
            held: Mutex::new(0),
        })))
    }

    /// Holds bytes that are to be read or made, beside those before.
    ///
    /// # Errors
    /// The limit that others of the user, of the workspace or of the server have reached.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), StatusReply> {
        let Some(request) = self.0.as_ref().filter(|_| bytes > SMALL_BYTES) else {
            return Ok(());
        };
        let mut own = request.held.lock().unwrap_or_else(PoisonError::into_inner);
        request.server.take(*own, bytes)?;
        for (taken, (book, name)) in request.books.iter().flatten().enumerate() {
            if let Err(refusal) = book.take_bytes(name, *own, bytes) {
                request.server.held.fetch_sub(bytes, Ordering::AcqRel);
                for (book, name) in request.books.iter().flatten().take(taken) {
                    book.give_back_bytes(name, bytes);
                }
                return Err(refusal);
            }
        }
        *own += bytes;
        Ok(())
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let held = *self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if held == 0 {
            return;
        }
        self.server.held.fetch_sub(held, Ordering::AcqRel);
        for (book, name) in self.books.iter().flatten() {
            book.give_back_bytes(name, held);
        }
    }
}
