//! Handover of the place of a thread that answers to another one, while it does something that
//! blocks.
//!
//! The runtime keeps the place of a thread that leaves in a slot, and a thread that comes back
//! takes what it finds there: also the place of the one that has left after it. Then that one
//! computes in its place, and nobody answers. So one thread at a time leaves or comes back.

use super::priority::Priority;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};

/// Longest time between two looks at whether another thread has started.
const LOOK: Duration = Duration::from_millis(50);

/// Held by a thread that leaves those that answer, or comes back to them: of normal and of low
/// priority, so that none waits for the start of a thread of lower priority.
static HANDOVERS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

/// Lets another thread answer in the place of this one, and runs something that blocks. In a
/// runtime of one thread it just runs.
pub fn leave_threads<T>(block: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            let leaving = handover();
            let (done, _coming_back) = block_in_place(|| {
                until_another_starts(&handle);
                drop(leaving);
                (block(), handover())
            });
            done
        }
        _ => block(),
    }
}

fn handover() -> MutexGuard<'static, ()> {
    let [normal, low] = &HANDOVERS;
    let lock = match Priority::current() {
        Priority::Normal => normal,
        Priority::Low => low,
    };
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until another thread has the place of this one. Threads that block start in the order in
/// which they are wanted, and the runtime has wanted the one for the place before.
fn until_another_starts(handle: &Handle) {
    let started = Arc::new(AtomicBool::new(false));
    let told = Told(thread::current(), started.clone());
    handle.spawn_blocking(move || drop(told));
    while !started.load(Ordering::Acquire) {
        thread::park_timeout(LOOK);
    }
}

/// Tells a thread that another one has started; or that it never will, when the runtime ends.
struct Told(Thread, Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Release);
        self.0.unpark();
    }
}
