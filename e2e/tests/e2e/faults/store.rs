//! Damage to the files of the embedded store, and full disks.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::UNIX_EPOCH,
};

use insula_e2e::{Answer, Client, Server, Setup, Stopped, Who, until, workspace};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PAGE: usize = 4096;

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}

/// Returns every config map of the workspace: its revision and its data.
fn served(client: &Client) -> BTreeMap<String, (String, Value)> {
    let list = client.get(MAPS).expect(200);
    let items = list["items"].as_array().unwrap().iter().map(|item| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap().to_owned();
        (text("name"), (text("resourceVersion"), item["data"].clone()))
    });
    items.collect()
}

/// A server's files after its end, and the state that it had acknowledged.
struct Ended {
    stopped: Stopped,
    /// The store's files at the end of the server.
    files: Vec<(PathBuf, Vec<u8>)>,
    workspace: String,
    acknowledged: BTreeMap<String, (String, Value)>,
}

impl Ended {
    /// Runs a server, writes some objects, and ends it with a signal.
    fn after(signal: &str) -> Self {
        let server = Server::start();
        let (workspace, _) = workspace(&server.admin(), "damaged");
        let client = server.admin().in_workspace(&workspace);
        for n in 0..24 {
            let text = format!("acknowledged {n} ").repeat(1 + n * 20);
            client.post(MAPS, &config_map(&format!("m{n}"), &text)).expect(201);
        }
        for n in (0..24).step_by(5) {
            client.delete(&format!("{MAPS}/m{n}")).expect(200);
            client
                .merge(&format!("{MAPS}/m{}", n + 1), &json!({"data": {"more": "too"}}))
                .expect(200);
        }
        let acknowledged = served(&client);
        server.signal(signal);
        let stopped = server.ended();
        let dir = stopped.data_dir().join("store");
        let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| !path.ends_with("lock") && !path.ends_with("reserve"));
        Ended {
            files: files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect(),
            stopped,
            workspace,
            acknowledged,
        }
    }

    fn objects(&self) -> &[u8] {
        let found = self.files.iter().find(|(path, _)| path.ends_with("objects.redb"));
        &found.unwrap().1
    }

    /// Restores the files, damages them, and starts a server. Returns true if it serves the
    /// acknowledged state, false if it refuses to start with a reason.
    fn serves_after(&self, what: &str, damage: impl FnOnce(&Path)) -> bool {
        let dir = self.stopped.data_dir().join("store");
        for (path, bytes) in &self.files {
            std::fs::write(path, bytes).unwrap();
        }
        damage(&dir);
        match self.stopped.start() {
            Ok(server) => {
                let found = served(&server.admin().in_workspace(&self.workspace));
                assert!(found == self.acknowledged, "{what}: other data is served");
                true
            }
            Err(end) => {
                let named = ["objects.redb", "acknowledged", "stored object"];
                assert!(named.iter().any(|name| end.contains(name)), "{what}: {end}");
                assert!(end.contains("restore a backup"), "{what}: {end}");
                assert!(!end.contains("panicked") && end.lines().count() < 20, "{what}: {end}");
                false
            }
        }
    }

    /// Changes a part of the objects, a different part at each start.
    fn serves_with(&self, what: &str, at: usize, change: impl FnOnce(&mut [u8])) -> bool {
        let mut bytes = self.objects().to_vec();
        change(&mut bytes[at..]);
        self.serves_after(what, |dir| std::fs::write(dir.join("objects.redb"), bytes).unwrap())
    }
}

/// Small random numbers from a printed seed.
struct Draw(u64);

impl Draw {
    fn from_clock() -> Self {
        let seed = UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        eprintln!("seed {seed}");
        Draw(seed)
    }

    fn choice<T: Copy>(&mut self, choices: &[T]) -> T {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        choices[(self.0 >> 33) as usize % choices.len()]
    }
}

/// Flips two dozen bits each: in texts of objects, in any nonzero bytes, and in the first bytes,
/// which name the newest commit.
fn flip_bits(signal: &str) {
    let ended = Ended::after(signal);
    let (mut draw, objects) = (Draw::from_clock(), ended.objects());
    let texts: Vec<_> = objects
        .windows(12)
        .enumerate()
        .filter(|(_, text)| text == b"acknowledged")
        .map(|(at, _)| at)
        .collect();
    let used: Vec<_> = (0..objects.len()).filter(|at| objects[*at] != 0).collect();
    let first: Vec<_> = (0..320).collect();
    let mut refused = 0;
    // The checksums of the two newest commits: the engine falls back to the older commit, which is
    // not the acknowledged state.
    for at in [64 + 112, 192 + 112] {
        let what = format!("bit 0 of byte {at} after {signal}");
        refused += usize::from(!ended.serves_with(&what, at, |bytes| bytes[0] ^= 1));
    }
    assert_eq!(refused, 1, "of the two, one is the newest");
    for places in [&texts, &used, &first] {
        for _ in 0..8 {
            let (at, bit) = (draw.choice(places), draw.choice(&[0, 1, 2, 3, 4, 5, 6, 7]));
            let what = format!("bit {bit} of byte {at} after {signal}");
            refused += usize::from(!ended.serves_with(&what, at, |bytes| bytes[0] ^= 1 << bit));
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_flipped_bit_of_a_stopped_store_is_never_served() {
    flip_bits("-TERM");
}

#[test]
fn a_flipped_bit_of_a_killed_store_is_never_served() {
    flip_bits("-KILL");
}

#[test]
fn a_zeroed_page_is_refused_with_a_short_message() {
    let ended = Ended::after("-TERM");
    let (mut draw, objects) = (Draw::from_clock(), ended.objects());
    let used: Vec<_> = (0..objects.len() / PAGE)
        .filter(|page| objects[page * PAGE..][..PAGE].iter().any(|byte| *byte != 0))
        .collect();
    let mut refused = 0;
    for page in (0..10).map(|_| draw.choice(&used)).chain([0]) {
        let what = format!("page {page} zeroed");
        refused += usize::from(!ended.serves_with(&what, page * PAGE, |bytes| bytes[..PAGE].fill(0)));
    }
    assert!(refused > 0);
}

#[test]
fn a_store_without_its_file_does_not_start_empty() {
    for signal in ["-TERM", "-KILL"] {
        let ended = Ended::after(signal);
        let refused = |what: &str, damage: &dyn Fn(&Path)| assert!(!ended.serves_after(what, damage), "{what}");
        refused("missing", &|dir| {
            std::fs::remove_file(dir.join("objects.redb")).unwrap()
        });
        refused("empty", &|dir| std::fs::write(dir.join("objects.redb"), "").unwrap());
        refused("cut", &|dir| {
            let file = std::fs::File::options()
                .write(true)
                .open(dir.join("objects.redb"))
                .unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        });
        refused("without its record", &|dir| {
            std::fs::remove_file(dir.join("acknowledged")).unwrap()
        });
        assert!(ended.serves_after("whole", |_| ()));
    }
}

/// A small file system, mounted until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it. Returns None, and prints a line that says so, where mounting is not permitted.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=40m,mode=0700", "tmpfs"];
        let done = Command::new("mount").args(options).arg(at).output();
        if !done.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: mounting a tmpfs is not permitted");
            std::fs::remove_dir(at).unwrap();
            return None;
        }
        Some(SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, since a server may still be ending.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn large(n: usize) -> Value {
    config_map(&format!("m{n}"), &"x".repeat(900_000))
}

/// Creates large ConfigMaps until the server refuses one. Returns their number and the refusal.
fn fill(client: &Client) -> (usize, Answer) {
    for count in 0..100 {
        let answer = client.post(MAPS, &large(count));
        if answer.code != 201 {
            return (count, answer);
        }
    }
    panic!("the disk never gets full");
}

#[test]
fn a_full_disk_lets_deletions_through_and_clears_by_itself() {
    let (mut disk, reserve) = (None, "INSULA_STORE_RESERVE_MEGABYTES".to_owned());
    let setup = Setup {
        environment: vec![(reserve, "8".to_owned())],
        ..Setup::default()
    };
    let server = Server::with_data(setup, |data| disk = SmallDisk::mount(data));
    if disk.is_none() {
        return;
    }
    let (place, _) = workspace(&server.admin(), "full");
    let client = server.admin().in_workspace(&place);
    let (count, refused) = fill(&client);
    let reason = refused.body["reason"].as_str();
    assert_eq!(
        (refused.code, reason),
        (507, Some("InsufficientStorage")),
        "{}",
        refused.text
    );
    assert!(!refused.headers.contains_key("retry-after"));
    // The same after a restart.
    let server = server.restart();
    let client = server.admin().in_workspace(&place);
    client.post(MAPS, &large(count)).expect(507);
    // Reads succeed, the alarm is raised, and the server stays in service for clients that free
    // space.
    assert_eq!(
        served(&client)
            .values()
            .filter(|(_, data)| data["text"].is_string())
            .count(),
        count
    );
    assert_eq!(server.admin().get("/livez").code, 200);
    let verbose = server.client(Who::ShardAdmin).get("/readyz?verbose");
    assert!(
        verbose.code == 200 && verbose.text.contains("[!]disk alarm: the disk is full"),
        "{}",
        verbose.text
    );
    let full = |value: u8| {
        let line = format!("insula_store_disk_full {value}");
        let has = || server.client(Who::ShardAdmin).get("/metrics").text.contains(&line);
        until("the metric tells", || has().then_some(()));
    };
    full(1);
    client
        .merge(&format!("{MAPS}/m1"), &json!({"data": {"more": "x"}}))
        .expect(507);
    client.delete(&format!("{MAPS}/m0")).expect(200);
    // Deletions alone free the space that clears the alarm.
    (1..count).for_each(|n| drop(client.delete(&format!("{MAPS}/m{n}")).expect(200)));
    until("writes are taken again", || {
        (client.post(MAPS, &large(0)).code == 201).then_some(())
    });
    full(0);
    assert!(server.log().contains("there is space on the disk again"));
    // No data is lost.
    let before = served(&client);
    let server = server.restart();
    assert!(served(&server.admin().in_workspace(&place)) == before);
}
