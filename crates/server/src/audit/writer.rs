//! Writer thread of the audit log, and its queue.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use insula_api::Timestamp;
use insula_auth::audit::{Event, Sink};

use super::file::{Keep, Rotated};
use crate::{
    StartError,
    build::block_in_place,
    config::{AuditConfig, WhenFull},
    files,
    metrics::{AuditOutcome, Metrics},
};

/// Pause between two reads of the queue: requests that arrive meanwhile wake no thread.
const PERIOD: Duration = Duration::from_millis(10);
/// Maximum number of bytes that one call writes.
const BATCH_BYTES: usize = 1 << 20;
/// Longest time that a request waits for room in the queue, if requests wait at all. A stalled log
/// does not stop the server.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// Pause between two log lines about the same disk.
const COMPLAINT_PERIOD: Duration = Duration::from_secs(60);

enum Message {
    Event(Box<Event>),
    Close,
}

/// Sink of audit events that writes them to the log.
pub(crate) struct Writer {
    queue: SyncSender<Message>,
    when_full: WhenFull,
    thread: Mutex<Option<JoinHandle<()>>>,
    metrics: Arc<Metrics>,
}

impl Writer {
    pub(super) fn start(config: &AuditConfig, path: PathBuf, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        if let Some(dir) = path.parent() {
            files::private_dir(dir)?;
        }
        let keep = Keep::new(config.max_megabytes, config.max_backups, config.max_age_days);
        let file = Rotated::open(path.clone(), keep).map_err(|cause| StartError::write(&path, cause))?;
        let (queue, events) = sync_channel(config.queue);
        let writing = Writing {
            file,
            path,
            metrics: Arc::clone(&metrics),
            complained: None,
        };
        let thread = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writing.run(&events));
        let thread = thread.map_err(|error| StartError::Build(format!("no thread for the audit log: {error}")))?;
        Ok(Writer {
            queue,
            when_full: config.when_full,
            thread: Mutex::new(Some(thread)),
            metrics,
        })
    }

    /// Writes the queued events and ends the thread. Blocks.
    pub(crate) fn close(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that panicked takes no message, and has reported the panic.
            drop(self.queue.send(Message::Close));
            drop(thread.join());
        }
    }

    /// Waits for room in the queue, without blocking other tasks of the thread.
    fn wait(&self, mut message: Message) {
        let begun = Instant::now();
        block_in_place(&mut || {
            while begun.elapsed() < PATIENCE {
                match self.queue.try_send(std::mem::replace(&mut message, Message::Close)) {
                    Ok(()) => {
                        self.metrics.audit_queue().inc();
                        return;
                    }
                    Err(TrySendError::Full(back)) => message = back,
                    Err(TrySendError::Disconnected(_)) => break,
                }
                thread::sleep(PAUSE);
            }
            self.metrics.audited(AuditOutcome::Lost, 1);
        });
    }
}

impl Sink for Writer {
    fn take(&self, event: Event) {
        match (self.queue.try_send(Message::Event(Box::new(event))), self.when_full) {
            (Ok(()), _) => {
                self.metrics.audit_queue().inc();
            }
            (Err(TrySendError::Full(message)), WhenFull::Wait) => self.wait(message),
            (Err(_), _) => self.metrics.audited(AuditOutcome::Lost, 1),
        }
    }
}

/// State of the writer thread.
struct Writing {
    file: Rotated,
    path: PathBuf,
    metrics: Arc<Metrics>,
    complained: Option<Instant>,
}

impl Writing {
    fn run(mut self, events: &Receiver<Message>) {
        let (mut batch, mut open) = (Vec::new(), true);
        while open {
            let Ok(first) = events.recv() else { return };
            if matches!(first, Message::Event(_)) {
                thread::sleep(PERIOD);
            }
            let mut count = 0;
            for message in std::iter::once(first).chain(events.try_iter()) {
                if matches!(message, Message::Event(_)) {
                    self.metrics.audit_queue().dec();
                }
                match message {
                    Message::Event(event) => match encode(&event, &mut batch) {
                        true => count += 1,
                        false => self.metrics.audited(AuditOutcome::Lost, 1),
                    },
                    Message::Close => open = false,
                }
                if batch.len() >= BATCH_BYTES {
                    self.write(&mut batch, &mut count);
                }
            }
            self.write(&mut batch, &mut count);
        }
    }

    fn write(&mut self, batch: &mut Vec<u8>, count: &mut u64) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp(i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX));
        let outcome = match self.file.write(batch, now) {
            Ok(()) => AuditOutcome::Written,
            Err(error) => {
                self.complain(&error);
                AuditOutcome::Lost
            }
        };
        self.metrics.audited(outcome, std::mem::take(count));
        batch.clear();
    }

    fn complain(&mut self, error: &std::io::Error) {
        if self.complained.is_none_or(|when| when.elapsed() > COMPLAINT_PERIOD) {
            self.complained = Some(Instant::now());
            tracing::error!(path = %self.path.display(), %error, "audit events are lost: the log cannot be written");
        }
    }
}

/// Appends an event as a line. Returns false if it cannot be encoded.
fn encode(event: &Event, batch: &mut Vec<u8>) -> bool {
    let length = batch.len();
    let encoded = serde_json::to_writer(&mut *batch, event).is_ok();
    match encoded {
        true => batch.push(b'\n'),
        false => batch.truncate(length),
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            stage: insula_auth::audit::Stage::ResponseComplete,
            at: 0,
            facts: insula_auth::audit::Facts::default(),
        }
    }

    #[test]
    fn what_is_in_the_queue_is_written_before_the_end_and_what_is_too_much_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/audit.log");
        let metrics = Arc::new(Metrics::new("1"));
        let config = AuditConfig {
            queue: 4,
            ..AuditConfig::default()
        };
        let writer = Writer::start(&config, path.clone(), Arc::clone(&metrics)).unwrap();
        for _ in 0..1_000 {
            writer.take(event());
        }
        writer.close();
        writer.close();
        writer.take(event());
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        let text = metrics.text();
        let counted = |outcome: &str| -> usize {
            let prefix = format!("insula_audit_events_total{{outcome=\"{outcome}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&prefix));
            line.map_or(0, |count| count.parse().unwrap())
        };
        assert_eq!(counted("Written"), lines);
        assert_eq!(metrics.audit_queue().get(), 0);
        assert_eq!(counted("Written") + counted("Lost"), 1_001, "{text}");
        assert!(lines >= 4);
    }

    #[test]
    fn requests_may_wait_for_room_so_that_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let config = AuditConfig {
            queue: 1,
            when_full: WhenFull::Wait,
            ..AuditConfig::default()
        };
        let writer = Writer::start(&config, path.clone(), Arc::new(Metrics::new("1"))).unwrap();
        for _ in 0..10 {
            writer.take(event());
        }
        writer.close();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 10);
    }
}
