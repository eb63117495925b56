//! Timers of a watch: its bookmarks, and its end.

use std::{pin::Pin, time::Duration};
use tokio::time::{Sleep, sleep};

/// Shortest time of a watch without `timeoutSeconds`; a random part of it is added, as in
/// kube-apiserver.
const TIMEOUT_MIN: Duration = Duration::from_secs(1800);

/// Returns the duration of a watch: `timeoutSeconds`, or a random one, so that watches that began
/// together do not end together.
pub(super) fn watch_timeout(timeout_seconds: Option<u64>, random: u64) -> Duration {
    match timeout_seconds {
        Some(seconds) => Duration::from_secs(seconds),
        None => TIMEOUT_MIN + TIMEOUT_MIN.mul_f64((random % 1000) as f64 / 1000.0),
    }
}

/// The timers of a watch.
pub(super) struct Times {
    end: Pin<Box<Sleep>>,
    bookmark: Pin<Box<Sleep>>,
    period: Duration,
}

/// A timer that fired.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tick {
    Bookmark,
    End,
}

impl Times {
    pub(super) fn new(timeout: Duration, period: Duration) -> Times {
        Times {
            end: Box::pin(sleep(timeout)),
            bookmark: Box::pin(sleep(period)),
            period,
        }
    }

    /// Waits for the next timer. Cancellation loses nothing.
    pub(super) async fn next(&mut self) -> Tick {
        tokio::select! {
            biased;
            () = &mut self.end => Tick::End,
            () = &mut self.bookmark => {
                self.bookmark = Box::pin(sleep(self.period));
                Tick::Bookmark
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_last_half_an_hour_to_an_hour() {
        assert_eq!(watch_timeout(Some(7), 500), Duration::from_secs(7));
        for (random, seconds) in [(0, 1800), (500, 2700), (999, 3598), (1000, 1800), (u64::MAX, 2907)] {
            assert_eq!(watch_timeout(None, random).as_secs(), seconds, "{random}");
        }
    }

    #[tokio::test]
    async fn bookmarks_come_again_until_the_end() {
        let (short, long) = (Duration::from_millis(5), Duration::from_secs(600));
        let mut times = Times::new(long, short);
        assert_eq!(
            (times.next().await, times.next().await),
            (Tick::Bookmark, Tick::Bookmark)
        );
        assert_eq!(Times::new(short, long).next().await, Tick::End);
    }
}
