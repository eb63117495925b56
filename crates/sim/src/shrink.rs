//! Smaller runs that fail as well.

use crate::{Report, Settings};

/// Most runs that are tried.
const RUNS_MAX: usize = 80;

/// Returns a smaller run of the seed that fails, in whatever way: without some of the `faults` of
/// its world, with fewer servers or steps. None of these can be left out of it on its own.
pub fn shrink(failing: &Settings, faults: &[&'static str], run: impl Fn(&Settings) -> Report) -> Settings {
    let mut smallest = failing.clone();
    let mut runs = 0;
    while let Some(smaller) = candidates(&smallest, faults).into_iter().find(|candidate| {
        runs += 1;
        runs <= RUNS_MAX && run(candidate).failure.is_some()
    }) {
        smallest = smaller;
    }
    smallest
}

/// Returns runs that are a little smaller, the smallest first.
fn candidates(settings: &Settings, faults: &[&'static str]) -> Vec<Settings> {
    let faults = faults.iter().filter(|name| !settings.without.contains(name));
    let without = faults.map(|name| {
        let mut smaller = settings.clone();
        smaller.without.push(name);
        smaller
    });
    let servers = (1..settings.servers).map(|servers| Settings {
        servers,
        ..settings.clone()
    });
    let parts = [(1, 4), (1, 2), (3, 4), (9, 10)];
    let steps = parts.iter().map(|(part, of)| Settings {
        steps: settings.steps * part / of,
        ..settings.clone()
    });
    let steps = steps.filter(|smaller| smaller.steps < settings.steps);
    steps.chain(servers).chain(without).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::FAULTS;

    #[test]
    fn what_a_failure_needs_is_left() {
        let needs = |settings: &Settings| Report {
            failure: (settings.steps >= 100 && settings.servers >= 2 && !settings.without.contains(&"lag"))
                .then(|| "it fails".to_owned()),
            trace: Vec::new(),
            hash: 0,
            steps: 0,
            commits: 0,
            outcomes: [0; 4],
        };
        let failing = Settings {
            seed: 1,
            steps: 20_000,
            servers: 3,
            without: Vec::new(),
            plant: None,
            whole_trace: false,
        };
        let smallest = shrink(&failing, &FAULTS, needs);
        assert!(
            (100..=111).contains(&smallest.steps) && smallest.servers == 2,
            "{smallest:?}"
        );
        let left: Vec<_> = FAULTS.iter().filter(|name| !smallest.without.contains(name)).collect();
        assert_eq!(left, [&"lag"]);
    }
}
