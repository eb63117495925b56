use super::*;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::task::{JoinSet, yield_now};

fn tenant(name: &str) -> Tenant {
    Tenant::User(name.into())
}

fn places(turns: &Turns) -> usize {
    let lines = locked(&turns.0);
    assert!(lines.order.is_empty() && lines.lines.is_empty());
    lines.free
}

/// A hundred requests of one tenant are there first; another tenant's ten are served in turn with them.
#[tokio::test]
async fn a_flood_waits_for_itself() {
    let (turns, served) = (Turns::new(1), Arc::new(Mutex::new(Vec::new())));
    let mut all = JoinSet::new();
    for (name, count) in [("flood", 100), ("quiet", 10)] {
        for _ in 0..count {
            let (turns, served) = (turns.clone(), served.clone());
            all.spawn(async move {
                turns.take(tenant(name), 0, async { locked(&served).push(name) }).await;
            });
        }
    }
    // Nobody has run yet: this thread is the only one.
    let held = (0..2)
        .map(|_| locked(&turns.0).seize())
        .filter(|seized| *seized)
        .count();
    for _ in 0..4 {
        yield_now().await;
    }
    let mut woken = Vec::new();
    {
        let mut lines = locked(&turns.0);
        lines.free += held;
        lines.give(&mut woken);
    }
    woken.into_iter().for_each(Waker::wake);
    while all.join_next().await.is_some() {}
    let served = locked(&served);
    let last = served.iter().rposition(|name| *name == "quiet").expect("was served");
    assert!(last <= 22, "the last of ten came after {last} others");
    assert_eq!(places(&turns), 2);
}

/// Waiting for something else holds no place, and whoever goes away leaves none behind: in any order, with wakes from other
/// threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn places_come_back_whatever_happens() {
    let (turns, computing) = (Turns::new(1), Arc::new(AtomicUsize::new(0)));
    let mut all = JoinSet::new();
    for n in 0..400_u64 {
        let (turns, computing) = (turns.clone(), computing.clone());
        all.spawn(async move {
            let work = async {
                for step in 0..5 {
                    let now = computing.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= PLACES_PER_CORE, "{now} at once");
                    std::hint::black_box((0..200).sum::<u64>());
                    computing.fetch_sub(1, Ordering::SeqCst);
                    match (n + step) % 3 {
                        0 => yield_now().await,
                        1 => tokio::time::sleep(Duration::from_micros(n * 7 % 500)).await,
                        _ => {
                            let mut elsewhere = JoinSet::new();
                            elsewhere.spawn_blocking(|| ());
                            drop(elsewhere.join_next().await);
                        }
                    }
                }
            };
            let turn = turns.take(tenant(["a", "b", "c"][n as usize % 3]), 0, work);
            match n % 5 {
                0 => drop(tokio::time::timeout(Duration::from_micros(n * 3), turn).await),
                _ => turn.await,
            }
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.expect("no panic");
    }
    assert_eq!(places(&turns), 2);
}

#[tokio::test]
async fn a_panic_gives_its_place_back() {
    let turns = Turns::new(1);
    for _ in 0..5 {
        let turns = turns.clone();
        let work = async move { turns.take(tenant("a"), 0, async { panic!("as it was to be") }).await };
        let mut spawned: JoinSet<()> = JoinSet::new();
        spawned.spawn(work);
        assert!(spawned.join_next().await.is_some_and(|ended| ended.is_err()));
    }
    assert_eq!(places(&turns), 2);
}

/// Who has been alone for a while waits for nobody, until somebody else comes.
#[test]
fn one_alone_takes_no_turns() {
    let mut lines = Lines::default();
    let (a, b) = (tenant("a"), tenant("b"));
    let alone = |lines: &mut Lines, tenant: &Tenant, now: i64| lines.is_alone(tenant, now);
    assert!(!alone(&mut lines, &a, 0));
    assert!(alone(&mut lines, &a, ALONE_MICROS + 1));
    assert!(!alone(&mut lines, &b, ALONE_MICROS + 2));
    assert!(!alone(&mut lines, &a, ALONE_MICROS + 3));
    assert!(!alone(&mut lines, &a, 2 * ALONE_MICROS));
    assert!(alone(&mut lines, &a, 2 * ALONE_MICROS + 4));
}
