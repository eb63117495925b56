//! Bytes in flight: memory of request bodies, and of answers that are rendered as a whole.
//!
//! A request reserves its bytes before they are read or rendered, and releases them when the last
//! byte of its answer is sent. The user, the workspace and the server have a limit each. A request
//! may exceed a limit if no other request counts against it: a list that is larger than the limit
//! is answered, one at a time.

use super::{Limit, Rejection, Rejections, Usage, UsageTable};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

/// Bytes of a request that are not counted: the limits of requests in flight bound their sum.
pub const SMALL_BYTES: usize = 64 << 10;

/// The bytes in flight of one request. Clones belong to the same request; the last one releases the
/// bytes.
#[derive(Clone, Default)]
pub struct Budget(Option<Arc<Request>>);

/// A user or a workspace with its limit of bytes.
type Payer = (Arc<UsageTable>, Arc<str>, usize);

struct Request {
    server: Arc<Total>,
    /// The user, and the workspace where there is one.
    subjects: [Option<Payer>; 2],
    held: Mutex<usize>,
}

/// Bytes in flight of all requests.
pub(super) struct Total {
    most: usize,
    held: AtomicUsize,
    rejections: Arc<Rejections>,
}

impl Total {
    pub(super) fn new(most: usize, rejections: Arc<Rejections>) -> Arc<Self> {
        Arc::new(Total {
            most,
            held: AtomicUsize::new(0),
            rejections,
        })
    }

    fn take(&self, own: usize, bytes: usize) -> Result<(), Limit> {
        let fits = |held: usize| (held <= own || held + bytes <= self.most).then_some(held + bytes);
        let taken = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
        taken
            .map(drop)
            .map_err(|_| refused(&self.rejections, "the server", self.most))
    }
}

impl UsageTable {
    fn take_bytes(&self, name: &Arc<str>, own: usize, bytes: usize, most: usize) -> Result<(), Limit> {
        let mut usage = self.entries.entry(name.clone()).or_default();
        let Usage { bytes: held, .. } = &mut *usage;
        if *held > own && *held + bytes > most {
            return Err(refused(&self.rejections, self.subject, most));
        }
        *held += bytes;
        Ok(())
    }

    fn release_bytes(&self, name: &Arc<str>, bytes: usize) {
        if let Some(mut usage) = self.entries.get_mut(name) {
            usage.bytes -= bytes;
        }
    }
}

fn refused(rejections: &Rejections, subject: &str, most: usize) -> Limit {
    rejections.count(Rejection::Bytes);
    Limit(format!(
        "requests and answers of {subject} hold {most} bytes, and may hold no more at once"
    ))
}

impl Budget {
    pub(super) fn new(server: &Arc<Total>, subjects: [Option<Payer>; 2]) -> Self {
        Budget(Some(Arc::new(Request {
            server: server.clone(),
            subjects,
            held: Mutex::new(0),
        })))
    }

    /// Reserves bytes that are about to be read or rendered, beside those before.
    ///
    /// # Errors
    /// The limit that other requests of the user, the workspace or the server have reached.
    pub fn hold(&self, bytes: usize) -> Result<(), Limit> {
        let Some(request) = self.0.as_ref().filter(|_| bytes > SMALL_BYTES) else {
            return Ok(());
        };
        let mut own = request.held.lock().unwrap_or_else(PoisonError::into_inner);
        request.server.take(*own, bytes)?;
        for (taken, (table, name, most)) in request.subjects.iter().flatten().enumerate() {
            if let Err(refusal) = table.take_bytes(name, *own, bytes, *most) {
                request.server.held.fetch_sub(bytes, Ordering::AcqRel);
                for (table, name, _) in request.subjects.iter().flatten().take(taken) {
                    table.release_bytes(name, bytes);
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
        for (table, name, _) in self.subjects.iter().flatten() {
            table.release_bytes(name, held);
        }
    }
}
