//! Counters, gauges and histograms. The part of the server that does the work owns and updates
//! them; the server reads them when metrics are requested or exported.
//!
//! Updates are atomic additions without a lock, except for [`TopCounts`], which has labels that
//! tenants choose, and therefore a limit.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Target of the spans that only traces have: authentication, verbs, commits and the like. They
/// cost an atomic read without a collector.
pub const TRACE: &str = "insula_trace";

/// Upper bounds of latencies in seconds: 0.1 ms to 60 s.
pub const SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Upper bounds of distances in revisions.
pub const REVISIONS: &[f64] = &[0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0];

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds a number.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Sets the value.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds a number, which may be negative.
    pub fn add(&self, value: i64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns the value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one until the result is dropped.
    pub fn hold(self: &Arc<Self>) -> GaugeGuard {
        self.add(1);
        GaugeGuard(Arc::clone(self))
    }
}

/// Guard of a gauge: counts one until it is dropped.
#[derive(Debug)]
#[must_use = "counts until it is dropped"]
pub struct GaugeGuard(Arc<Gauge>);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

/// A distribution over buckets with fixed upper bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Observations by bucket; the last one has no bound.
    counts: Box<[AtomicU64]>,
    /// Sum of the observations in billionths.
    billionths: AtomicU64,
}

/// State of a [`Histogram`].
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// Upper bounds, ascending and inclusive.
    pub bounds: &'static [f64],
    /// Observations by bucket, one more than bounds.
    pub counts: Vec<u64>,
    /// Sum of the observations.
    pub sum: f64,
}

impl Distribution {
    /// Returns the number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Histogram {
    /// Creates an empty histogram over ascending upper bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Histogram {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            billionths: AtomicU64::new(0),
        }
    }

    /// Adds a latency.
    pub fn observe(&self, took: Duration) {
        self.add(took.as_secs_f64(), u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the latency between two readings of a monotonic clock, in microseconds.
    pub fn observe_micros(&self, from: i64, to: i64) {
        self.observe(Duration::from_micros(u64::try_from(to - from).unwrap_or_default()));
    }

    /// Adds a whole number.
    pub fn observe_count(&self, count: u64) {
        self.add(count as f64, count.saturating_mul(1_000_000_000));
    }

    fn add(&self, value: f64, billionths: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.billionths.fetch_add(billionths, Ordering::Relaxed);
    }

    /// Returns the present state.
    pub fn read(&self) -> Distribution {
        Distribution {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.billionths.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

/// Counts by names that tenants choose. A limited number of names is counted, and a smaller number
/// shown: those with the highest counts. The others are one sum, which never decreases.
///
/// By example, with one shown name: add(a, 5) read → a: 5, others 0. add(b, 9) read → b: 0, others
/// 14, because a name is shown with what it counts from then on.
#[derive(Debug)]
pub struct TopCounts {
    names_max: usize,
    shown_max: usize,
    state: Mutex<TopState>,
}

#[derive(Debug, Default)]
struct TopState {
    names: HashMap<Arc<str>, Count>,
    /// Counts of names beyond the limit, and of names while they are not shown.
    others: u64,
}

#[derive(Debug, Default)]
struct Count {
    all: u64,
    /// Counts that belong to `others`; `None` while the name is not shown.
    before: Option<u64>,
}

impl TopCounts {
    /// Creates an empty table.
    pub fn new(names_max: usize, shown_max: usize) -> Self {
        TopCounts {
            names_max,
            shown_max,
            state: Mutex::default(),
        }
    }

    /// Adds to the count of a name.
    pub fn add(&self, name: &str, count: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let TopState { names, others } = &mut *state;
        if let Some(known) = names.get_mut(name) {
            known.all += count;
            if known.before.is_none() {
                *others += count;
            }
            return;
        }
        if names.len() < self.names_max {
            // A free place is taken at once, so that a short series of few names is complete.
            let shown = names.values().filter(|count| count.before.is_some()).count();
            let before = (shown < self.shown_max).then_some(0);
            names.insert(name.into(), Count { all: count, before });
            if before.is_some() {
                return;
            }
        }
        *others += count;
    }

    /// Returns the shown names with their counts, in the order of names, and the sum of the others.
    pub fn read(&self) -> (Vec<(Arc<str>, u64)>, u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let TopState { names, others } = &mut *state;
        let mut ranked: Vec<(&Arc<str>, &mut Count)> = names.iter_mut().collect();
        // The name breaks ties, so that equal counts do not take turns.
        ranked.sort_unstable_by(|a, b| (b.1.all, a.0).cmp(&(a.1.all, b.0)));
        let mut shown = Vec::new();
        for (place, (name, count)) in ranked.into_iter().enumerate() {
            if place < self.shown_max {
                let before = *count.before.get_or_insert(count.all);
                shown.push((Arc::clone(name), count.all - before));
            } else if let Some(before) = count.before.take() {
                *others += count.all - before;
            }
        }
        shown.sort_unstable();
        (shown, *others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observations_are_in_the_first_bucket_that_holds_them() {
        let histogram = Histogram::new(&[0.001, 0.01]);
        for millis in [0, 1, 2, 10, 11] {
            histogram.observe(Duration::from_millis(millis));
        }
        histogram.observe_micros(5_000, 4_000);
        let read = histogram.read();
        assert_eq!(read.counts, [3, 2, 1]);
        assert_eq!((read.count(), read.sum), (6, 0.024));
        let revisions = Histogram::new(REVISIONS);
        for count in [0, 1, 2, u64::MAX] {
            revisions.observe_count(count);
        }
        assert_eq!(revisions.read().counts, [1, 1, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn guards_count_until_they_are_dropped() {
        let gauge = Arc::new(Gauge::default());
        let held = [gauge.hold(), gauge.hold()];
        assert_eq!(gauge.get(), 2);
        drop(held);
        assert_eq!(gauge.get(), 0);
    }

    /// Whatever names are chosen, the series are few and no count is lost or goes back.
    #[test]
    fn the_largest_names_are_shown_and_nothing_is_lost() {
        let counts = TopCounts::new(100, 3);
        let (mut added, mut last) = (0, 0);
        for round in 0..50_u64 {
            for name in 0..30 {
                let count = (name * round) % 17;
                counts.add(&format!("{}-{name}", round % 7), count);
                added += count;
            }
            let (shown, others) = counts.read();
            assert!(shown.len() <= 3 && others >= last, "{shown:?} {others} {last}");
            last = others;
        }
        let known: u64 = {
            let state = counts.state.lock().unwrap();
            let shown = state.names.values().filter_map(|count| Some(count.all - count.before?));
            shown.sum::<u64>() + state.others
        };
        assert_eq!(known, added);
        assert!(counts.state.lock().unwrap().names.len() <= 100);
    }

    #[test]
    fn a_name_that_grows_takes_the_place_of_a_smaller_one() {
        let counts = TopCounts::new(10, 1);
        counts.add("a", 5);
        assert_eq!(counts.read(), (vec![("a".into(), 5)], 0));
        counts.add("b", 9);
        assert_eq!(counts.read(), (vec![("b".into(), 0)], 14));
        counts.add("b", 1);
        counts.add("a", 1);
        assert_eq!(counts.read(), (vec![("b".into(), 1)], 15));
    }
}
