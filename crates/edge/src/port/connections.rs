//! Table of open connections: slots, shares of addresses, and the order in which connections are
//! closed.
//!
//! A connection is anonymous ("a stranger") until its client certificate is verified or one of its
//! requests is authenticated; from then on it belongs to an account. Strangers may hold a share of
//! the slots for each address, and accounts may not take the last tenth. So a new connection always
//! gets a slot, at the expense of the oldest idle stranger, and an authenticated connection keeps
//! its slot.
//!
//! With 10 slots, one of them for strangers: s1 s2 … s10, then s11 connects → s1 is closed. s11
//! shows a credential → it belongs to an account. With nine connections of accounts, s12 shows a
//! credential → the oldest idle connection of the largest account is closed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connection_limits::ConnectionLimits,
    exchange::Exchange,
    metrics::{ClosedFor, OpenCount, PortMetrics},
};

/// One slot in this many is kept for connections that have shown no credential.
const FOR_STRANGERS: usize = 10;
/// Bounds of the time between two sweeps, which is a quarter of the shortest time limit.
const SWEEP_MIN: Duration = Duration::from_millis(100);
const SWEEP_MAX: Duration = Duration::from_secs(5);

/// All open connections.
pub(crate) struct Connections {
    total: usize,
    /// Slots that accounts may hold; strangers hold at least the rest.
    for_accounts: usize,
    per_address: usize,
    times: Times,
    begun: Instant,
    metrics: Arc<dyn PortMetrics>,
    slots: Arc<Semaphore>,
    table: Mutex<Table>,
    /// Exchanges on all connections that began before the server closes.
    in_flight: TaskTracker,
}

/// Time limits of a connection.
#[derive(Clone, Copy)]
struct Times {
    /// From the last request to the next one.
    idle: Duration,
    /// For the first request, and for the headers of each over HTTP/1.1.
    headers: Duration,
    /// For reading a piece of an answer.
    stall: Duration,
}

/// Connections that are not being closed, in the order of their arrival.
#[derive(Default)]
struct Table {
    next: u64,
    strangers: BTreeMap<u64, Arc<Connection>>,
    addresses: HashMap<Address, BTreeSet<u64>>,
    accounts: HashMap<Arc<str>, BTreeMap<u64, Arc<Connection>>>,
    of_accounts: usize,
}

/// The address of a peer, or the network of 64 bits that an IPv6 host chooses its addresses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Address(IpAddr);

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        Address(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address => address,
        })
    }
}

/// One connection, from its accept on.
pub(crate) struct Connection {
    id: u64,
    address: Address,
    connections: Arc<Connections>,
    account: OnceLock<Arc<str>>,
    /// Exchanges that have begun and not ended.
    exchanges: Mutex<HashMap<u64, Weak<Exchange>>>,
    begun_exchanges: AtomicU64,
    open_exchanges: AtomicUsize,
    /// Time of the end of the last exchange, or of the accept, in milliseconds of the table's
    /// clock.
    idle_since: AtomicU64,
    /// Time at which the first byte of request headers arrived; 0 for none. HTTP/1.1 alone.
    headers_since: AtomicU64,
    is_http2: AtomicBool,
    has_calls: AtomicBool,
    finish: CancellationToken,
    abort: CancellationToken,
}

/// A slot in the table, held until everything on the connection has ended.
pub(crate) struct ConnectionSlot {
    pub(crate) connection: Arc<Connection>,
    _counted: OpenCount,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connection.connections.table().remove(&self.connection);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent between any two statements, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    pub(crate) fn new(limits: &ConnectionLimits, metrics: Arc<dyn PortMetrics>) -> Arc<Self> {
        let total = limits.connections;
        let for_strangers = total.div_ceil(FOR_STRANGERS).min(total.saturating_sub(1));
        Arc::new(Connections {
            total,
            for_accounts: total - for_strangers,
            per_address: limits.per_address,
            times: Times {
                idle: limits.idle,
                headers: limits.headers,
                stall: limits.stall,
            },
            begun: Instant::now(),
            metrics,
            slots: Arc::new(Semaphore::new(total)),
            table: Mutex::default(),
            in_flight: TaskTracker::new(),
        })
    }

    /// Stops to count new exchanges: the server closes.
    pub(crate) fn end(&self) {
        self.in_flight.close();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.table)
    }

    /// Returns the milliseconds since the table was created, plus one: 0 stands for never.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).map_or(u64::MAX, |now| now.saturating_add(1))
    }

    /// Admits a connection from an address. Returns nothing when every slot belongs to an account
    /// with requests in flight.
    pub(crate) async fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let connection = self.enter(peer.into())?;
        let permit = Arc::clone(&self.slots).acquire_owned().await;
        Some(ConnectionSlot {
            connection,
            _counted: OpenCount::begin(&self.metrics),
            _permit: permit.expect("the semaphore is never closed"),
        })
    }

    fn enter(self: &Arc<Self>, address: Address) -> Option<Arc<Connection>> {
        let mut table = self.table();
        let of_address = table.addresses.get(&address).map_or(0, BTreeSet::len);
        if of_address >= self.per_address
            && let Some(oldest) = table.stranger_of(address)
        {
            self.close(&mut table, &oldest, ClosedFor::Address);
        }
        if table.strangers.len() + table.of_accounts >= self.total {
            let Some(oldest) = table.stranger().or_else(|| table.idle_account()) else {
                self.metrics.closed(ClosedFor::Full);
                return None;
            };
            self.close(&mut table, &oldest, ClosedFor::Full);
        }
        let id = table.next;
        table.next += 1;
        let connection = Arc::new(Connection {
            id,
            address,
            connections: Arc::clone(self),
            account: OnceLock::new(),
            exchanges: Mutex::default(),
            begun_exchanges: AtomicU64::new(0),
            open_exchanges: AtomicUsize::new(0),
            idle_since: AtomicU64::new(self.now()),
            headers_since: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            has_calls: AtomicBool::new(false),
            finish: CancellationToken::new(),
            abort: CancellationToken::new(),
        });
        table.strangers.insert(id, Arc::clone(&connection));
        table.addresses.entry(address).or_default().insert(id);
        Some(connection)
    }

    /// Closes the first stranger in closing order, so that its file descriptor is free. Returns
    /// false if there is none.
    pub(crate) fn close_stranger(&self) -> bool {
        let mut table = self.table();
        let oldest = table.stranger();
        if let Some(oldest) = &oldest {
            self.close(&mut table, oldest, ClosedFor::Full);
        }
        oldest.is_some()
    }

    /// Ends a connection at once.
    fn close(&self, table: &mut Table, connection: &Arc<Connection>, reason: ClosedFor) {
        table.remove(connection);
        connection.abort.cancel();
        self.metrics.closed(reason);
        tracing::debug!(address = %connection.address.0, ?reason, "connection closed");
    }

    /// Closes idle connections and stalled exchanges periodically. Runs until dropped.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let Times { idle, headers, stall } = self.times;
        let period = (idle.min(headers).min(stall) / 4).clamp(SWEEP_MIN, SWEEP_MAX);
        loop {
            sleep(period).await;
            // Not under the lock: closing removes a connection from the table.
            let all = self.table().all();
            for connection in all {
                self.look_at(&connection);
            }
        }
    }

    fn look_at(&self, connection: &Arc<Connection>) {
        let now = self.now();
        let over = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) > limit.as_millis();
        if connection.open_exchanges.load(Ordering::Acquire) > 0 {
            let exchanges: Vec<_> = locked(&connection.exchanges).values().cloned().collect();
            for exchange in exchanges.iter().filter_map(Weak::upgrade) {
                if exchange
                    .stalls_since()
                    .is_some_and(|since| over(since, self.times.stall))
                {
                    self.cut(connection, &exchange);
                }
            }
            return;
        }
        let Times { idle, headers, .. } = self.times;
        let headers_since = connection.headers_since.load(Ordering::Relaxed);
        let idle_since = connection.idle_since.load(Ordering::Relaxed);
        let first = connection.begun_exchanges.load(Ordering::Relaxed) == 0;
        let idle = if first { headers } else { idle };
        if headers_since > 0 && over(headers_since, headers) {
            self.close(&mut self.table(), connection, ClosedFor::Headers);
        } else if connection.finish.is_cancelled() {
            if over(idle_since, idle + headers) {
                connection.abort.cancel();
            }
        } else if over(idle_since, idle) {
            // A request that arrives at this moment is still answered.
            connection.finish.cancel();
            self.metrics.closed(ClosedFor::Idle);
        }
    }

    /// Resets a stalled stream. Closes the connection if that does not help, or if it has no
    /// streams.
    fn cut(&self, connection: &Arc<Connection>, exchange: &Exchange) {
        if connection.is_http2.load(Ordering::Relaxed) && exchange.cut() {
            self.metrics.stream_reset();
        } else {
            self.close(&mut self.table(), connection, ClosedFor::Stalled);
        }
    }

    /// Moves the connection to an account.
    fn authenticated(&self, connection: &Arc<Connection>, account: &str) {
        let mut table = self.table();
        if connection.account.get().is_some() || !table.strangers.contains_key(&connection.id) {
            return;
        }
        if table.of_accounts >= self.for_accounts {
            // If no connection of an account is idle, the new one is closed: served ones take
            // precedence.
            let goes = table.idle_account().unwrap_or_else(|| Arc::clone(connection));
            self.close(&mut table, &goes, ClosedFor::Full);
            if Arc::ptr_eq(&goes, connection) {
                return;
            }
        }
        table.remove(connection);
        let account: Arc<str> = account.into();
        let _ = connection.account.set(Arc::clone(&account));
        let of_account = table.accounts.entry(account).or_default();
        of_account.insert(connection.id, Arc::clone(connection));
        table.of_accounts += 1;
    }
}

impl Table {
    /// Returns the first stranger in closing order: the oldest idle one, or else the oldest.
    fn stranger(&self) -> Option<Arc<Connection>> {
        let idle = self.strangers.values().find(|connection| connection.is_idle());
        idle.or_else(|| self.strangers.values().next()).cloned()
    }

    /// Returns the first stranger in closing order among those of an address.
    fn stranger_of(&self, address: Address) -> Option<Arc<Connection>> {
        let ids = self.addresses.get(&address)?;
        let mut all = ids.iter().filter_map(|id| self.strangers.get(id));
        let oldest = all.clone().next();
        all.find(|connection| connection.is_idle()).or(oldest).cloned()
    }

    /// Returns the oldest idle connection of the account with most connections, among accounts with
    /// an idle one.
    fn idle_account(&self) -> Option<Arc<Connection>> {
        let mut accounts: Vec<_> = self.accounts.values().collect();
        accounts.sort_by_key(|of_account| std::cmp::Reverse(of_account.len()));
        let mut all = accounts.into_iter().flat_map(BTreeMap::values);
        all.find(|connection| connection.is_idle()).cloned()
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        let of_accounts = self.accounts.values().flat_map(BTreeMap::values);
        self.strangers.values().chain(of_accounts).cloned().collect()
    }

    fn remove(&mut self, connection: &Connection) {
        if self.strangers.remove(&connection.id).is_some() {
            if let Some(ids) = self.addresses.get_mut(&connection.address) {
                ids.remove(&connection.id);
                if ids.is_empty() {
                    self.addresses.remove(&connection.address);
                }
            }
        } else if let Some(account) = connection.account.get()
            && let Some(of_account) = self.accounts.get_mut(account)
            && of_account.remove(&connection.id).is_some()
        {
            self.of_accounts -= 1;
            if of_account.is_empty() {
                self.accounts.remove(account);
            }
        }
    }
}

impl Connection {
    /// Moves the connection to an account. Only the first account counts.
    pub(crate) fn authenticated(self: &Arc<Self>, account: &str) {
        if self.account.get().is_none() {
            self.connections.authenticated(self, account);
        }
    }

    /// Records the end of the TLS handshake. Over HTTP/2 streams can be reset one by one, and bytes
    /// between them are no headers.
    pub(crate) fn shook_hands(&self, is_http2: bool) {
        self.is_http2.store(is_http2, Ordering::Relaxed);
        self.idle_since.store(self.now(), Ordering::Relaxed);
        self.headers_since.store(0, Ordering::Relaxed);
    }

    /// Returns the time of the table's clock.
    pub(crate) fn now(&self) -> u64 {
        self.connections.now()
    }

    /// Records the end of an exchange.
    pub(crate) fn ended(&self, exchange: u64) {
        locked(&self.exchanges).remove(&exchange);
        self.idle_since.store(self.now(), Ordering::Relaxed);
        self.open_exchanges.fetch_sub(1, Ordering::AcqRel);
    }

    /// Records that bytes arrived.
    pub(crate) fn received(&self) {
        let between = self.open_exchanges.load(Ordering::Relaxed) == 0;
        if between && self.headers_since.load(Ordering::Relaxed) == 0 && !self.is_http2.load(Ordering::Relaxed) {
            self.headers_since.store(self.now(), Ordering::Relaxed);
        }
    }

    /// Begins an exchange: a request, or something else that keeps the connection busy while it
    /// lasts.
    pub(crate) fn exchange(self: &Arc<Self>) -> Arc<Exchange> {
        let id = self.begun_exchanges.fetch_add(1, Ordering::Relaxed);
        self.open_exchanges.fetch_add(1, Ordering::AcqRel);
        self.headers_since.store(0, Ordering::Relaxed);
        let in_flight = &self.connections.in_flight;
        let token = (!in_flight.is_closed()).then(|| in_flight.token());
        let exchange = Arc::new(Exchange::new(id, Arc::clone(self), token));
        locked(&self.exchanges).insert(id, Arc::downgrade(&exchange));
        exchange
    }

    /// Records a gRPC call.
    pub(crate) fn called(&self) {
        self.has_calls.store(true, Ordering::Relaxed);
    }

    /// Completes when the connection may refuse streams because the server closes: at once, or, if
    /// it has calls, after the exchanges on all connections. Until then new calls get a refusal.
    pub(crate) async fn no_more_calls(&self) {
        if self.has_calls.load(Ordering::Relaxed) {
            self.connections.in_flight.wait().await;
        }
    }

    fn is_idle(&self) -> bool {
        self.open_exchanges.load(Ordering::Acquire) == 0
    }

    /// Completes when the connection is to end with the exchanges that have begun.
    pub(crate) async fn finishing(&self) {
        self.finish.cancelled().await;
    }

    /// Completes when the connection is to end now.
    pub(crate) async fn aborted(&self) {
        self.abort.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Unmeasured;
    use super::*;

    fn connections(total: usize) -> Arc<Connections> {
        Connections::new(&ConnectionLimits::of_test(total, 3), Arc::new(Unmeasured))
    }

    fn address(text: &str) -> Address {
        Address::from(text.parse::<IpAddr>().expect("an address"))
    }

    #[test]
    fn ipv6_addresses_count_by_their_network() {
        assert_eq!(address("2001:db8:1:2:3::4"), address("2001:db8:1:2::ffff"));
        assert_ne!(address("2001:db8:1:2::4"), address("2001:db8:1:3::4"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.1"), address("192.0.2.2"));
    }

    #[test]
    fn idle_connections_are_closed_first() {
        let (all, here, there) = (connections(10), address("192.0.2.1"), address("192.0.2.2"));
        let enter = |from| all.enter(from).expect("a slot");
        let first = enter(here);
        let busy = first.exchange();
        let (second, third) = (enter(here), enter(here));
        let _fourth = enter(here);
        assert!(
            !first.abort.is_cancelled() && second.abort.is_cancelled(),
            "the oldest idle one of its address"
        );
        drop(busy);
        let known: Vec<_> = (0..9)
            .map(|n| {
                let connection = enter(there);
                connection.authenticated(if n < 6 { "loud" } else { "quiet" });
                connection
            })
            .collect();
        assert!(
            first.abort.is_cancelled() && third.abort.is_cancelled(),
            "strangers make room for accounts"
        );
        enter(there).authenticated("new");
        let closed = known.iter().map(|connection| connection.abort.is_cancelled());
        let closed: Vec<bool> = closed.collect();
        assert_eq!(
            closed.iter().position(|closed| *closed),
            Some(0),
            "the largest account loses its oldest"
        );
        assert_eq!(closed.iter().filter(|closed| **closed).count(), 1);
        assert_eq!(all.table().of_accounts, 9);
    }
}
