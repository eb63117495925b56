//! An etcd of a test's own: one member or a cluster, on loopback.
//!
//! `INSULA_ETCD` names the programs, with colons between; without it `etcd` on the `PATH` is taken.
//! Members are killed, paused and started again by the test that started them.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::until;

/// Attempts to start a new cluster. Another process can take the chosen ports before the members
/// do.
const STARTS_MAX: usize = 5;

/// A running etcd, killed at the end.
pub struct Etcd {
    program: PathBuf,
    members: Vec<Member>,
    /// Files that members are started with over TLS: the CA, the certificate and its key.
    tls: Option<[PathBuf; 3]>,
    /// Bytes of the database at which the alarm NOSPACE is raised; None for etcd's default.
    quota_bytes: Option<u64>,
    dir: TempDir,
}

struct Member {
    process: Child,
    client: SocketAddr,
    peer: SocketAddr,
}

/// Returns the etcd programs that tests run against. Prints a line that says so when there are
/// none.
pub fn etcd_programs() -> Vec<PathBuf> {
    let named = std::env::var_os("INSULA_ETCD").unwrap_or_else(|| "etcd".into());
    let runs = |program: &PathBuf| Command::new(program).arg("--version").output().is_ok();
    let programs: Vec<PathBuf> = std::env::split_paths(&named).filter(runs).collect();
    if programs.is_empty() {
        eprintln!("skipped: no etcd (INSULA_ETCD names some, with colons between)");
    }
    programs
}

impl Etcd {
    /// Starts one member of the first program, if there is one.
    pub fn start() -> Option<Self> {
        let program = etcd_programs().into_iter().next()?;
        Some(Self::cluster(&program, 1))
    }

    /// Starts a cluster and waits until it has a leader.
    pub fn cluster(program: &Path, members: usize) -> Self {
        Self::with_quota(program, members, None)
    }

    /// Starts a cluster whose members take this many bytes.
    pub fn with_quota(program: &Path, members: usize, quota_bytes: Option<u64>) -> Self {
        for _ in 0..STARTS_MAX {
            let mut etcd = Self::spawn(program, members, quota_bytes);
            let ready = until("etcd has a leader", || {
                let ended = etcd.members.iter_mut().any(|m| m.process.try_wait().unwrap().is_some());
                if ended {
                    Some(false)
                } else {
                    etcd.leader().map(|_| true)
                }
            });
            if ready {
                return etcd;
            }
        }
        panic!("{} does not start", program.display());
    }

    fn spawn(program: &Path, members: usize, quota_bytes: Option<u64>) -> Self {
        // In memory where possible: these tests do not measure the disk.
        let shm = Path::new("/dev/shm");
        let place = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let dir = TempDir::with_prefix_in("insula-etcd-", place).unwrap();
        // All listeners stay open until all ports are chosen, so that no port is chosen twice.
        let held: Vec<TcpListener> = (0..2 * members)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let addresses: Vec<SocketAddr> = held.iter().map(|listener| listener.local_addr().unwrap()).collect();
        drop(held);
        let pairs: Vec<&[SocketAddr]> = addresses.chunks(2).collect();
        let peers: Vec<SocketAddr> = pairs.iter().map(|pair| pair[1]).collect();
        let start = |(index, pair): (usize, &&[SocketAddr])| Member {
            process: launch(program, dir.path(), index, (pair[0], &peers), None, quota_bytes),
            client: pair[0],
            peer: pair[1],
        };
        Self {
            program: program.to_owned(),
            members: pairs.iter().enumerate().map(start).collect(),
            tls: None,
            quota_bytes,
            dir,
        }
    }

    /// Returns the value of `--store`.
    pub fn store(&self) -> String {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        let clients: Vec<String> = self.members.iter().map(|member| member.client.to_string()).collect();
        format!("{scheme}://{}", clients.join(","))
    }

    /// Writes keys, a hundred in a transaction.
    pub fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) {
        for part in pairs.chunks(100) {
            let put = |(key, value): &(Vec<u8>, Vec<u8>)| {
                let (key, value) = (crate::base64(key), crate::base64(value));
                json!({"requestPut": {"key": key, "value": value}})
            };
            let txn = json!({"success": part.iter().map(put).collect::<Vec<_>>()});
            let answer = post(self.members[0].client, "/v3/kv/txn", &txn);
            let is_done = answer.as_ref().is_some_and(|answer| answer["succeeded"] == true);
            assert!(is_done, "{answer:?}");
        }
    }

    /// Returns the number of keys that begin with a text, which is not empty.
    pub fn count(&self, prefix: &str) -> usize {
        let mut end = prefix.to_owned().into_bytes();
        *end.last_mut().unwrap() += 1;
        let [key, end] = [prefix.as_bytes(), &end].map(crate::base64);
        let range = json!({"key": key, "range_end": end, "count_only": true});
        let answer = post(self.members[0].client, "/v3/kv/range", &range).expect("etcd answers");
        // Protobuf's JSON leaves a zero out, and writes numbers of 64 bits as texts.
        answer["count"].as_str().map_or(0, |count| count.parse().unwrap())
    }

    /// Returns the keys and values of objects whose encoded keys begin with a text: those in slots,
    /// and those of earlier formats.
    pub fn objects(&self, prefix: &str) -> Vec<Value> {
        let [(earlier, behind), (slots, behind_slots)] = [
            (format!("/insula/objects/{prefix}"), "/insula/objects0"),
            ("/insula/slots/".to_owned(), "/insula/slots0"),
        ];
        let mut found = Vec::new();
        for (key, end) in [(&earlier, behind), (&slots, behind_slots)] {
            let [encoded_key, end] = [key.as_bytes(), end.as_bytes()].map(crate::base64);
            let range = json!({"key": encoded_key, "range_end": end});
            let answer = post(self.members[0].client, "/v3/kv/range", &range).expect("etcd answers");
            let kvs = answer["kvs"].as_array().cloned().unwrap_or_default();
            found.extend(kvs.into_iter().filter(|kv| {
                let there = crate::from_base64(kv["key"].as_str().unwrap());
                let in_slot = |rest: &[u8]| {
                    rest.get(5..)
                        .is_some_and(|encoded| encoded.starts_with(prefix.as_bytes()))
                };
                there.starts_with(earlier.as_bytes()) || there.strip_prefix(slots.as_bytes()).is_some_and(in_slot)
            }));
        }
        found
    }

    /// Returns the number of transactions that the first member has executed, without those in
    /// which servers write their own records.
    pub fn transactions(&self) -> u64 {
        let metrics = exchange(self.members[0].client, "GET", "/metrics", "").expect("etcd has metrics");
        let is_txn = |line: &&str| line.starts_with("grpc_server_handled_total{") && line.contains("\"Txn\"");
        let counts = metrics.lines().filter(is_txn).filter_map(|line| line.rsplit_once(' '));
        let all: u64 = counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum();
        let records = self.objects("internal.insula.io/servers/");
        // A version counts the writes of a key.
        let versions = records.iter().map(|kv| kv["version"].as_str().unwrap());
        let beats: u64 = versions.map(|version| version.parse::<u64>().unwrap()).sum();
        assert!(beats > 0, "servers write their records");
        all - beats
    }

    /// Returns the leader's index, if a member knows one.
    pub fn leader(&self) -> Option<usize> {
        let status = |member: &Member| post(member.client, "/v3/maintenance/status", &json!({}));
        let ids: Vec<Option<Value>> = self.members.iter().map(status).collect();
        let mut leaders = ids.iter().flatten().map(|status| status["leader"].clone());
        let leader = leaders.rfind(|id| id.as_str().is_some_and(|id| id != "0"))?;
        ids.iter().position(|status| {
            status
                .as_ref()
                .is_some_and(|status| status["header"]["member_id"] == leader)
        })
    }

    /// Returns a member that is not the leader.
    pub fn follower(&self) -> usize {
        let leader = until("etcd has a leader", || self.leader());
        (leader + 1) % self.members.len()
    }

    /// Returns a member that a process of this machine is connected to.
    pub fn used_by(&self, pid: u32) -> Option<usize> {
        let sockets: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .ok()?
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .filter_map(|link| {
                Some(
                    link.to_str()?
                        .strip_prefix("socket:[")?
                        .trim_end_matches(']')
                        .to_owned(),
                )
            })
            .collect();
        // Columns: number, local and remote address, state (01: established), …, inode.
        let table = fs::read_to_string("/proc/net/tcp").ok()?;
        let connected: Vec<String> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|row| {
                row.get(3) == Some(&"01") && row.get(9).is_some_and(|inode| sockets.iter().any(|s| s == inode))
            })
            .map(|row| row[2].to_owned())
            .collect();
        self.members.iter().position(|member| {
            let port = format!(":{:04X}", member.client.port());
            connected.iter().any(|remote| remote.ends_with(&port))
        })
    }

    /// Ends a member without a warning.
    pub fn kill(&mut self, index: usize) {
        let process = &mut self.members[index].process;
        // Already gone where a test kills twice.
        let _ = process.kill();
        process.wait().unwrap();
    }

    /// Stops a member's threads: its connections stay open, and nothing answers.
    pub fn pause(&self, index: usize) {
        self.signal(index, "-STOP");
    }

    /// Lets a paused member go on.
    pub fn resume(&self, index: usize) {
        self.signal(index, "-CONT");
    }

    fn signal(&self, index: usize, signal: &str) {
        let pid = self.members[index].process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Starts a member that was killed.
    pub fn restart(&mut self, index: usize) {
        let peers: Vec<SocketAddr> = self.members.iter().map(|member| member.peer).collect();
        let client = self.members[index].client;
        let addresses = (client, &*peers);
        let (dir, tls) = (self.dir.path(), self.tls.as_ref());
        self.members[index].process = launch(&self.program, dir, index, addresses, tls, self.quota_bytes);
    }

    /// Waits until every member answers and knows a leader.
    pub fn until_whole(&self) {
        until("every member of etcd knows the leader", || {
            let knows = |member: &Member| {
                let status = post(member.client, "/v3/maintenance/status", &json!({}));
                status.is_some_and(|status| status["leader"].as_str().is_some_and(|id| id != "0"))
            };
            self.members.iter().all(knows).then_some(())
        });
    }

    /// Kills all members, edits their data directories, and starts them again.
    pub fn restart_all_after(&mut self, edit: impl Fn(&Path)) {
        (0..self.members.len()).for_each(|index| self.kill(index));
        (0..self.members.len()).for_each(|index| edit(&data_dir(self.dir.path(), index)));
        (0..self.members.len()).for_each(|index| self.restart(index));
    }

    /// Raises the alarm of a full disk: etcd refuses writes.
    pub fn raise_nospace(&self) {
        let alarm = json!({"action": "ACTIVATE", "alarm": "NOSPACE"});
        let answer = post(self.members[0].client, "/v3/maintenance/alarm", &alarm);
        assert!(answer.is_some_and(|answer| answer["error"].is_null()), "no alarm");
    }

    /// Frees the space of deleted objects, and ends the alarm, as an operator does.
    pub fn free_space(&self) {
        let ask = |path: &str, body: &Value| {
            let answer = post(self.members[0].client, path, body);
            let answer = answer.unwrap_or_else(|| panic!("no answer of {path}"));
            assert!(answer["error"].is_null(), "{path}: {answer}");
            answer
        };
        let status = ask("/v3/maintenance/status", &json!({}));
        let revision = &status["header"]["revision"];
        ask("/v3/kv/compaction", &json!({"revision": revision, "physical": true}));
        ask("/v3/maintenance/defragment", &json!({}));
        let alarm = json!({"action": "DEACTIVATE", "memberID": status["header"]["member_id"], "alarm": "NOSPACE"});
        ask("/v3/maintenance/alarm", &alarm);
    }

    /// Makes members require TLS and a client certificate of the CA from the next start on.
    pub fn secure(&mut self, ca: &Path, certificate: &Path, key: &Path) {
        self.tls = Some([ca.to_owned(), certificate.to_owned(), key.to_owned()]);
    }

    /// Enables authentication: a user `root` with all rights, and this user with a role for one
    /// prefix.
    pub fn require_user(&self, name: &str, password: &str, prefix: &str) {
        let base64 = |text: &str| crate::base64(text.as_bytes());
        let mut end = prefix.to_owned().into_bytes();
        *end.last_mut().unwrap() += 1;
        let end = crate::base64(&end);
        let permission = json!({"permType": "READWRITE", "key": base64(prefix), "range_end": end});
        for (path, body) in [
            ("user/add", json!({"name": "root", "password": "root's"})),
            ("role/add", json!({"name": "root"})),
            ("user/grant", json!({"user": "root", "role": "root"})),
            ("user/add", json!({"name": name, "password": password})),
            ("role/add", json!({"name": "insula"})),
            ("role/grant", json!({"name": "insula", "perm": permission})),
            ("user/grant", json!({"user": name, "role": "insula"})),
            ("enable", json!({})),
        ] {
            let answer = post(self.members[0].client, &format!("/v3/auth/{path}"), &body);
            assert!(
                answer.as_ref().is_some_and(|answer| answer["error"].is_null()),
                "{path}: {answer:?}"
            );
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It may have ended by itself.
            let _ = member.process.kill();
            let _ = member.process.wait();
        }
    }
}

fn data_dir(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("m{index}"))
}

fn launch(
    program: &Path,
    dir: &Path,
    index: usize,
    (client, peers): (SocketAddr, &[SocketAddr]),
    tls: Option<&[PathBuf; 3]>,
    quota_bytes: Option<u64>,
) -> Child {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (client, peer) = (format!("{scheme}://{client}"), format!("http://{}", peers[index]));
    let all: Vec<String> = peers
        .iter()
        .enumerate()
        .map(|(index, peer)| format!("m{index}=http://{peer}"))
        .collect();
    let log = fs::File::create(dir.join(format!("m{index}.log"))).unwrap();
    let mut command = Command::new(program);
    command
        .args(["--name", &format!("m{index}"), "--log-level", "error"])
        .arg("--data-dir")
        .arg(data_dir(dir, index))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &all.join(",")]);
    if let Some([ca, certificate, key]) = tls {
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
        command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
    }
    if let Some(bytes) = quota_bytes {
        command.arg(format!("--quota-backend-bytes={bytes}"));
    }
    command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}

/// Sends one request to etcd's JSON gateway. Returns None without an answer within a second.
fn post(to: SocketAddr, path: &str, body: &Value) -> Option<Value> {
    serde_json::from_str(&exchange(to, "POST", path, &body.to_string())?).ok()
}

/// Returns the body of an answer.
fn exchange(to: SocketAddr, method: &str, path: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: {to}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.split_once("\r\n\r\n")?.1.to_owned())
}
