//! Comparison of the copy in this process with etcd. An event that a watch loses is missing for
//! ever: later events move the copy on, and nothing that follows tells. So from time to time the
//! number of objects is compared at a revision that both have, and a page of keys with the
//! revisions of their objects, in turn. A difference ends the store, as a rollback of etcd does.

use crate::{keys::next_key, layout::is_stray, mirror::Mirror};
use etcd_client::{Error, GetOptions, KvClient};
use insula_api::{ObjectKey, Revision, Scope};
use insula_meter::ServerWork;
use insula_store::Snapshot;
use std::{convert::Infallible, time::Duration};

/// Keys of one comparison: those of 200,000 objects take eight hours at one in five minutes.
const PAGE_MAX: i64 = 2000;
/// Least time for a comparison. An answer that is lost must not be the last.
const TIMEOUT_MIN: Duration = Duration::from_secs(10);
/// Entries that are counted without a pause for others.
const STRIDE: usize = 1000;

/// A difference between the copy and etcd, or the reason why they were not compared.
enum Finding {
    Differs(String),
    Unknown(String),
}

impl From<Error> for Finding {
    fn from(error: Error) -> Self {
        Finding::Unknown(error.to_string())
    }
}

impl Mirror {
    /// Compares in intervals, until it is dropped.
    pub(crate) async fn audit(&self) -> Infallible {
        let mut from = Vec::new();
        loop {
            let options = self.members.options();
            (options.sleep)(options.audit_interval).await;
            let limit = options.audit_interval.max(TIMEOUT_MIN);
            let compared = options.timeout(limit, self.compare(&from)).await;
            let late = |_| Err(Finding::Unknown(format!("it took more than {limit:?}")));
            match compared.unwrap_or_else(late) {
                Ok(next) => from = next,
                Err(Finding::Differs(how)) => self.origin.status.fail(format!(
                    "the copy of etcd in this process differs: {how}. An event of its watch was lost; restart to read \
                     it anew, and upgrade etcd"
                )),
                // The next interval compares; that etcd cannot be read is told by those who read.
                Err(Finding::Unknown(reason)) => tracing::debug!(reason, "etcd was not compared"),
            }
        }
    }

    /// Compares the number of objects, and the page of keys from `from` on. Returns the begin of
    /// the next page.
    async fn compare(&self, from: &[u8]) -> Result<Vec<u8>, Finding> {
        // Pinned while both are read: neither changes at this revision.
        let snapshot = self.origin.mvcc.latest().for_server(ServerWork::Housekeeping);
        let mut kv = self.members.current().await?.kv;
        let (there, earlier) = self.count(&mut kv, snapshot.revision()).await?;
        let here = counted(&snapshot).await;
        let next = self.compare_page(&mut kv, &snapshot, from).await?;
        if snapshot.check_reads().is_ok() && here != there {
            let at = snapshot.revision();
            if self.keys.slots_began().is_some() && earlier > 0 {
                return Err(Finding::Unknown("objects have yet to be moved to their slots".into()));
            }
            return Err(Finding::Differs(format!(
                "{here} objects at revision {at}, and {there} in etcd"
            )));
        }
        Ok(next)
    }

    /// Returns the number of objects in etcd at a revision, and how many of them are in the earlier
    /// layout.
    async fn count(&self, kv: &mut KvClient, at: Revision) -> Result<(usize, usize), Error> {
        let at = i64::try_from(at.0).unwrap_or(i64::MAX);
        let options = || GetOptions::new().with_revision(at).with_count_only();
        let mut counts = Vec::new();
        for (start, end) in self.keys.ranges() {
            counts.push(kv.get(start, Some(options().with_range(end))).await?.count());
        }
        // The mark of the format lies among the earlier objects.
        let mark = kv.get(self.keys.format(), Some(options())).await?.count();
        let all = counts.iter().sum::<i64>() - mark;
        let earlier = counts.first().map_or(0, |earlier| earlier - mark);
        let [all, earlier] = [all, earlier].map(|count| usize::try_from(count).unwrap_or_default());
        Ok((all, earlier))
    }

    async fn compare_page(&self, kv: &mut KvClient, snapshot: &Snapshot, from: &[u8]) -> Result<Vec<u8>, Finding> {
        let ranges: Vec<_> = self.keys.ranges().collect();
        let inside = ranges.iter().position(|(start, end)| **start <= *from && *from < **end);
        let index = inside.unwrap_or_default();
        let (start, end) = ranges[index].clone();
        let from = if inside.is_some() { from } else { &start };
        let at = i64::try_from(snapshot.revision().0).unwrap_or(i64::MAX);
        let options = GetOptions::new()
            .with_revision(at)
            .with_range(end)
            .with_keys_only()
            .with_limit(PAGE_MAX);
        let page = kv.get(from, Some(options)).await?;
        for found in page.kvs() {
            let Some((layout, encoded)) = self.keys.encoded(found.key()) else {
                continue;
            };
            let revision = Revision(found.mod_revision().unsigned_abs());
            if is_stray(&self.keys, layout, revision) {
                continue;
            }
            // One that cannot be decoded was refused by the load, or by the watch.
            let Ok(key) = ObjectKey::decode(encoded) else { continue };
            let here = snapshot.get(&key).map(|entry| entry.revision);
            if here != Some(revision) && snapshot.check_reads().is_ok() {
                let here = here.map_or("absent".to_owned(), |here| format!("of revision {here}"));
                let name = String::from_utf8_lossy(encoded);
                return Err(Finding::Differs(format!(
                    "{name:?} is {here}, and of {revision} in etcd"
                )));
            }
        }
        match page.kvs().last().filter(|_| page.more()) {
            Some(last) => Ok(next_key(last.key())),
            None => Ok(ranges[(index + 1) % ranges.len()].0.clone()),
        }
    }
}

/// Counts the objects of a snapshot, and lets others run meanwhile.
async fn counted(snapshot: &Snapshot) -> usize {
    let everything = Scope::everything();
    let (mut count, mut last) = (0, None);
    loop {
        let some = snapshot.range(&everything, last.as_ref(), STRIDE);
        count += some.len();
        match some.last().filter(|_| some.len() == STRIDE) {
            Some(entry) => last = Some(entry.key.clone()),
            None => return count,
        }
        tokio::task::yield_now().await;
    }
}
