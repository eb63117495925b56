//! Futures that are polled one at a time, in an order that the seed chooses, and a clock that moves
//! when none of them can go on.

use crate::{dice::Dice, tasks::Tasks, time::Time};
use parking_lot::Mutex;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A world that takes longer has somebody who waits for ever.
const SECONDS_MAX: i64 = 24 * 60 * 60;

/// Futures that belong to nobody who may crash.
const WORLD: usize = 0;

type Future = Pin<Box<dyn std::future::Future<Output = ()> + Send>>;

enum Order {
    Spawn(usize, &'static str, Future),
    /// Drops all futures of an owner.
    End(usize),
}

/// The clock and the futures of a world.
pub(crate) struct Runtime {
    time: Arc<Time>,
    orders: Mutex<Vec<Order>>,
    owners: AtomicUsize,
}

impl Runtime {
    pub(crate) fn new() -> Arc<Runtime> {
        Arc::new(Runtime {
            time: Time::begin(),
            orders: Mutex::default(),
            owners: AtomicUsize::new(WORLD),
        })
    }

    /// Returns an owner that no other future has.
    pub(crate) fn new_owner(&self) -> usize {
        self.owners.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn spawn(&self, name: &'static str, future: impl std::future::Future<Output = ()> + Send + 'static) {
        self.spawn_for(WORLD, name, future);
    }

    pub(crate) fn spawn_for(
        &self,
        owner: usize,
        name: &'static str,
        future: impl std::future::Future<Output = ()> + Send + 'static,
    ) {
        self.orders.lock().push(Order::Spawn(owner, name, Box::pin(future)));
    }

    /// Drops all futures of an owner.
    pub(crate) fn end(&self, owner: usize) {
        self.orders.lock().push(Order::End(owner));
    }

    /// Returns a future that is ready after a time.
    pub(crate) fn pause(&self, time: Duration) -> futures_util::future::BoxFuture<'static, ()> {
        self.time.pause(time)
    }

    /// Pauses for less than so many milliseconds.
    pub(crate) async fn pause_below(&self, dice: &Dice, milliseconds: usize) {
        self.pause(Duration::from_micros(dice.below(milliseconds * 1_000) as u64))
            .await;
    }

    /// Polls until it is over.
    ///
    /// # Errors
    /// A future panicked, or it is never over.
    pub(crate) fn run(&self, dice: &Dice, is_over: impl Fn() -> bool) -> Result<(), String> {
        let mut tasks = Tasks::default();
        while !is_over() {
            for order in std::mem::take(&mut *self.orders.lock()) {
                match order {
                    Order::Spawn(owner, name, future) => tasks.spawn(owner, name, future),
                    Order::End(owner) => tasks.end(owner),
                }
            }
            let ready = tasks.ready();
            if !ready.is_empty() {
                tasks.poll(*dice.pick(&ready))?;
                continue;
            }
            self.time.pass(SECONDS_MAX);
            if self.time.seconds() >= SECONDS_MAX {
                return Err("somebody waits for ever".to_owned());
            }
        }
        Ok(())
    }
}
