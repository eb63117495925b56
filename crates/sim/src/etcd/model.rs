//! The state of a modelled etcd: what its members agree on, and how far each of them is.

use crate::{Plant, dice::Dice};
use etcd_client::proto::{
    PbCompare, PbDeleteResponse, PbEvent, PbKeyValue, PbPutResponse, PbRangeRequest, PbRangeResponse, PbResponseHeader,
    PbResponseOp, PbTargetUnion, PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest, PbTxnResponse,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};
use tonic::Status;

/// Operations of a transaction, comparisons, or looks of its other branch: etcd's default.
const TXN_OPS_MAX: usize = 128;
const CLUSTER: u64 = 0x1e5;

/// A write of one key.
#[derive(Clone)]
pub(crate) struct Version {
    created: i64,
    pub(crate) modified: i64,
    version: i64,
    /// Nothing for a deletion.
    pub(crate) value: Option<Vec<u8>>,
}

/// One member: its copy ends at a revision.
pub(crate) struct Member {
    pub(crate) applied: i64,
    /// Takes no further revision.
    pub(crate) lags: bool,
    /// Refuses connections, and ends those that there are.
    pub(crate) is_away: bool,
    /// Knows no leader, and says so.
    pub(crate) is_leaderless: bool,
    /// Watches of an earlier number have ended.
    pub(crate) watches: u64,
}

/// Everything.
pub(crate) struct State {
    pub(crate) revision: i64,
    pub(crate) compacted: i64,
    pub(crate) keys: BTreeMap<Vec<u8>, Vec<Version>>,
    pub(crate) is_full: bool,
    /// The next write takes the last space: it happens, and is answered as if it had not.
    pub(crate) takes_last_space: bool,
    pub(crate) members: Vec<Member>,
    /// The fault that it has.
    plant: Option<Plant>,
    dice: Dice,
}

impl State {
    pub(crate) fn new(members: usize, plant: Option<Plant>, dice: Dice) -> State {
        let member = || Member {
            applied: 1,
            lags: false,
            is_away: false,
            is_leaderless: false,
            watches: 0,
        };
        State {
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            is_full: false,
            takes_last_space: false,
            members: (0..members).map(|_| member()).collect(),
            plant,
            dice,
        }
    }

    pub(crate) fn has(&self, plant: &Plant) -> bool {
        self.plant.as_ref() == Some(plant)
    }

    /// Returns true at times, in a state with this fault.
    fn errs(&self, plant: &Plant) -> bool {
        self.has(plant) && self.dice.chance(2)
    }

    pub(crate) fn header(revision: i64) -> Option<PbResponseHeader> {
        Some(PbResponseHeader {
            cluster_id: CLUSTER,
            member_id: 1,
            revision,
            raft_term: 1,
        })
    }

    /// Moves all members on that do not lag.
    pub(crate) fn replicate(&mut self) {
        let revision = self.revision;
        let current = self.members.iter_mut().filter(|member| !member.lags);
        current.for_each(|member| member.applied = revision);
    }

    /// Lets a member that lags catch up.
    pub(crate) fn catch_up(&mut self, member: usize) {
        self.members[member].lags = false;
        self.members[member].applied = self.revision;
    }

    /// Returns the last write of a key up to a revision.
    pub(crate) fn version(&self, key: &[u8], at: i64) -> Option<&Version> {
        let versions = self.keys.get(key)?;
        versions.iter().rev().find(|version| version.modified <= at)
    }

    /// Returns the last write of a key up to a revision, unless that is a deletion.
    fn present(&self, key: &[u8], at: i64) -> Option<&Version> {
        self.version(key, at).filter(|version| version.value.is_some())
    }

    fn keys_in(&self, key: &[u8], end: &[u8]) -> Vec<Vec<u8>> {
        let behind = match end {
            [] => return vec![key.to_vec()],
            [0] => Bound::Unbounded,
            end => Bound::Excluded(end.to_vec()),
        };
        let range = self.keys.range((Bound::Included(key.to_vec()), behind));
        range.map(|(key, _)| key.clone()).collect()
    }

    /// Reads from a copy that ends at the revision `now`.
    pub(crate) fn range(&self, request: &PbRangeRequest, now: i64) -> Result<PbRangeResponse, Status> {
        let at = match request.revision {
            at if at > now => {
                return Err(Status::out_of_range(
                    "etcdserver: mvcc: required revision is a future revision",
                ));
            }
            at if at <= 0 => now,
            at if at < self.compacted => {
                return Err(Status::out_of_range(
                    "etcdserver: mvcc: required revision has been compacted",
                ));
            }
            at => at,
        };
        let keys = self.keys_in(&request.key, &request.range_end);
        let found = keys.iter().filter_map(|key| Some((key, self.present(key, at)?)));
        let mut found: Vec<PbKeyValue> = found.map(|(key, version)| key_value(key, version)).collect();
        let count = found.len();
        if request.max_mod_revision > 0 {
            found.retain(|kv| kv.mod_revision <= request.max_mod_revision);
        }
        match (request.sort_order, request.sort_target) {
            (0, _) => {}
            // By revision, the latest first.
            (2, 3) => found.sort_by_key(|kv| std::cmp::Reverse(kv.mod_revision)),
            other => unreachable!("no order {other:?} is asked for"),
        }
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
        let more = limit.is_some_and(|limit| found.len() > limit);
        found.truncate(limit.unwrap_or(usize::MAX));
        if request.count_only {
            found.clear();
        }
        if request.keys_only {
            found.iter_mut().for_each(|kv| kv.value.clear());
        }
        Ok(PbRangeResponse {
            header: Self::header(now),
            kvs: found,
            more: more && !request.count_only,
            count: count as i64,
        })
    }

    fn holds(&self, compare: &PbCompare) -> bool {
        assert!(compare.range_end.is_empty());
        let found = self.present(&compare.key, self.revision);
        let (found, wanted) = match compare.target_union.clone() {
            Some(PbTargetUnion::CreateRevision(wanted)) => (found.map_or(0, |version| version.created), wanted),
            Some(PbTargetUnion::ModRevision(wanted)) => (found.map_or(0, |version| version.modified), wanted),
            Some(PbTargetUnion::Version(wanted)) => (found.map_or(0, |version| version.version), wanted),
            other => unreachable!("nothing compares {other:?}"),
        };
        match compare.result {
            0 => found == wanted,
            1 => found > wanted,
            2 => found < wanted,
            _ => found != wanted,
        }
    }

    /// Executes a transaction, as the leader does.
    pub(crate) fn transact(&mut self, request: &PbTxnRequest) -> Result<PbTxnResponse, Status> {
        let sizes = [request.compare.len(), request.success.len(), request.failure.len()];
        if sizes.into_iter().any(|size| size > TXN_OPS_MAX) {
            return Err(Status::invalid_argument(
                "etcdserver: too many operations in txn request",
            ));
        }
        let all = || {
            request
                .success
                .iter()
                .chain(&request.failure)
                .filter_map(|op| op.request.as_ref())
        };
        let puts_something = all().any(|op| matches!(op, PbTxnOpRequest::RequestPut(_)));
        if self.is_full && puts_something {
            return Err(no_space());
        }
        let mut put = BTreeSet::new();
        let mut puts = request.success.iter().filter_map(|op| match op.request.as_ref() {
            Some(PbTxnOpRequest::RequestPut(request)) => Some(&request.key),
            _ => None,
        });
        if !puts.all(|key| put.insert(key)) {
            return Err(Status::invalid_argument(
                "etcdserver: duplicate key given in txn request",
            ));
        }
        let holds = request.compare.iter().all(|compare| self.holds(compare));
        let succeeded = holds || self.errs(&Plant::IgnoresComparisons);
        if self.errs(&Plant::Forgets) {
            return Ok(PbTxnResponse {
                header: Self::header(self.revision + 1),
                succeeded,
                responses: Vec::new(),
            });
        }
        let operations = match succeeded {
            true => &request.success,
            false => &request.failure,
        };
        let next = self.revision + 1;
        let mut answers = Vec::new();
        for operation in operations.iter().filter_map(|op| op.request.as_ref()) {
            answers.push(match operation {
                PbTxnOpRequest::RequestPut(put) => {
                    self.write(&put.key, next, Some(put.value.clone()));
                    PbTxnOpResponse::ResponsePut(PbPutResponse::default())
                }
                PbTxnOpRequest::RequestDeleteRange(delete) => {
                    let keys = self.keys_in(&delete.key, &delete.range_end);
                    let deleted = keys.iter().filter(|key| self.write(key, next, None)).count();
                    PbTxnOpResponse::ResponseDeleteRange(PbDeleteResponse {
                        deleted: deleted as i64,
                        ..PbDeleteResponse::default()
                    })
                }
                PbTxnOpRequest::RequestRange(range) => {
                    PbTxnOpResponse::ResponseRange(self.range(range, self.revision)?)
                }
                PbTxnOpRequest::RequestTxn(_) => unreachable!("no transaction has another one in it"),
            });
        }
        self.replicate();
        if puts_something && std::mem::take(&mut self.takes_last_space) {
            self.is_full = true;
            return Err(no_space());
        }
        let response = |response| PbResponseOp {
            response: Some(response),
        };
        Ok(PbTxnResponse {
            header: Self::header(self.revision),
            succeeded,
            responses: answers.into_iter().map(response).collect(),
        })
    }

    /// Writes a key of another user.
    pub(crate) fn put(&mut self, key: &[u8]) {
        self.write(key, self.revision + 1, Some(Vec::new()));
        self.replicate();
    }

    /// Writes a key at the next revision, which it begins. Returns false for the deletion of
    /// nothing.
    fn write(&mut self, key: &[u8], next: i64, value: Option<Vec<u8>>) -> bool {
        let earlier = self.present(key, next).cloned();
        if value.is_none() && earlier.is_none() {
            return false;
        }
        self.revision = next;
        self.keys.entry(key.to_vec()).or_default().push(Version {
            created: earlier.as_ref().map_or(next, |earlier| earlier.created),
            modified: next,
            version: earlier.map_or(1, |earlier| earlier.version + 1),
            value,
        });
        true
    }

    /// Returns the events of a range at one revision.
    pub(crate) fn events(&self, (key, end): (&[u8], &[u8]), revision: i64) -> Vec<PbEvent> {
        let changed = self.keys_in(key, end).into_iter().filter_map(|key| {
            let version = self.version(&key, revision)?;
            (version.modified == revision).then(|| PbEvent {
                r#type: i32::from(version.value.is_none()),
                kv: Some(key_value(&key, version)),
                prev_kv: None,
            })
        });
        changed.filter(|_| !self.errs(&Plant::LosesEvents)).collect()
    }

    pub(crate) fn compact(&mut self, upto: i64) -> Result<(), Status> {
        if upto <= self.compacted {
            return Err(Status::out_of_range(
                "etcdserver: mvcc: required revision has been compacted",
            ));
        }
        if upto > self.revision {
            return Err(Status::out_of_range(
                "etcdserver: mvcc: required revision is a future revision",
            ));
        }
        self.compacted = upto;
        Ok(())
    }

    /// Becomes what it was at a revision, as from a backup of then, and ends all watches.
    pub(crate) fn roll_back(&mut self, to: i64) {
        for versions in self.keys.values_mut() {
            versions.retain(|version| version.modified <= to);
        }
        self.revision = to;
        for member in &mut self.members {
            member.applied = to;
            member.watches += 1;
        }
    }
}

fn no_space() -> Status {
    Status::resource_exhausted("etcdserver: mvcc: database space exceeded")
}

fn key_value(key: &[u8], version: &Version) -> PbKeyValue {
    let is_there = version.value.is_some();
    PbKeyValue {
        key: key.to_vec(),
        create_revision: if is_there { version.created } else { 0 },
        mod_revision: version.modified,
        version: if is_there { version.version } else { 0 },
        value: version.value.clone().unwrap_or_default(),
        lease: 0,
    }
}
