//! Automata whose states are built while a text is read, at a price.
//!
//! A state is a set of states of the compiled pattern. Building a transition visits the members of
//! a state and what they lead to without a byte; with a transition that is known, a byte is cheap.

use super::Error;
use super::search::{Exhausted, Work};
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, NFA, State, WhichCaptures};
use regex_automata::util::pool::Pool;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Input, MatchKind};
use regex_syntax::hir::Hir;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Bytes of the states that one search keeps. When they are full, all are built again.
const STATES_BYTES_MAX: usize = 256 << 10;
/// Units of work for one visit. Measured at 17 ns, where reading a byte takes 2 to 4.
const VISIT_WORK: u64 = 5;
/// Visits that take as long as what each transition takes besides.
const TRANSITION_VISITS: u64 = 40;
/// Visits of one member that are counted one by one. Where there are more, a transition is taken to
/// visit the whole pattern.
const MEMBER_VISITS_MAX: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

type MakeStates = Box<dyn Fn() -> States + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// A lazily built automaton.
pub(super) struct Automaton {
    dfa: DFA,
    direction: Direction,
    /// The states built so far, once for each thread that searches.
    states: Pool<States, MakeStates>,
    visits: VisitCounts,
}

/// Visits of a transition.
#[derive(Debug, Clone, Copy)]
struct VisitCounts {
    /// Visits of all states of the pattern.
    whole: u64,
    /// The most visits of one member, if it is small.
    member: Option<u64>,
}

/// The states that were built.
struct States {
    cache: Cache,
    /// Upper bounds of the numbers of members.
    members: HashMap<LazyStateID, u64>,
    /// Number of times that all states were forgotten.
    cleared: usize,
}

impl fmt::Debug for Automaton {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Automaton")
            .field("visits", &self.visits)
            .finish_non_exhaustive()
    }
}

impl Automaton {
    /// Compiles a pattern into at most `bytes`.
    pub(super) fn new(hir: &Hir, direction: Direction, bytes: usize) -> Result<Self, Error> {
        let backward = direction == Direction::Backward;
        let config = thompson::Config::new()
            .utf8(false)
            .reverse(backward)
            .nfa_size_limit(Some(bytes))
            .which_captures(WhichCaptures::None);
        let nfa: NFA = thompson::Compiler::new()
            .configure(config)
            .build_from_hir(hir)
            .map_err(|_| Error::too_large(bytes))?;
        let visits = VisitCounts::from_nfa(&nfa);
        let kind = if backward {
            MatchKind::All
        } else {
            MatchKind::LeftmostFirst
        };
        let config = DFA::config()
            .match_kind(kind)
            .cache_capacity(STATES_BYTES_MAX)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder()
            .configure(config)
            .build_from_nfa(nfa)
            .map_err(|_| Error::too_large(bytes))?;
        let of = dfa.clone();
        let make: MakeStates = Box::new(move || States {
            cache: of.create_cache(),
            members: HashMap::new(),
            cleared: 0,
        });
        Ok(Self {
            dfa,
            direction,
            states: Pool::new(make),
            visits,
        })
    }

    /// Returns the bytes of the compiled pattern.
    pub(super) fn compiled_bytes(&self) -> usize {
        self.dfa.get_nfa().memory_usage()
    }

    /// Returns the end of the match from the start of the input's span, or the start of the longest
    /// match that ends with it.
    pub(super) fn search(&self, input: &Input<'_>, work: &mut Work) -> Result<Option<usize>, Exhausted> {
        let states = &mut *self.states.get();
        let backward = self.direction == Direction::Backward;
        let span = input.get_span();
        let start = start::Config::from_input_forward(input);
        let start = if backward {
            start::Config::from_input_reverse(input)
        } else {
            start
        };
        let mut state = self.dfa.start_state(&mut states.cache, &start).map_err(|_| Exhausted)?;
        let mut known = Known::default();
        let mut found = None;
        let bytes = input.haystack().get(span.range()).unwrap_or_default();
        for read in 0..bytes.len() {
            // Reports of matches are one byte late.
            let (at, index) = match self.direction {
                Direction::Forward => (span.start + read, read),
                Direction::Backward => (span.end - read, bytes.len() - 1 - read),
            };
            work.spend(1)?;
            state = self.next(states, state, bytes[index], &mut known, work)?;
            if state.is_match() {
                found = Some(at);
                if input.get_earliest() {
                    return Ok(found);
                }
            } else if state.is_dead() {
                return Ok(found);
            }
        }
        let end = if backward { span.start } else { span.end };
        let outside = match self.direction {
            Direction::Forward => input.haystack().get(end).copied(),
            Direction::Backward => end.checked_sub(1).and_then(|at| input.haystack().get(at)).copied(),
        };
        let last = match outside {
            Some(byte) => self.next(states, state, byte, &mut known, work)?,
            // At most one a search; each state that it begins in was paid for.
            None => self
                .dfa
                .next_eoi_state(&mut states.cache, state)
                .map_err(|_| Exhausted)?,
        };
        Ok(if last.is_match() { Some(end) } else { found })
    }

    /// Returns the state after a byte. Pays for a transition before it is built.
    fn next(
        &self,
        states: &mut States,
        state: LazyStateID,
        byte: u8,
        known: &mut Known,
        work: &mut Work,
    ) -> Result<LazyStateID, Exhausted> {
        if state.is_tagged() {
            // A match. Its transitions cannot be asked for without building them.
            let class = self.dfa.byte_classes().get(byte);
            if !known.is_new(states.cache.clear_count(), state, class) {
                return self
                    .dfa
                    .next_state(&mut states.cache, state, byte)
                    .map_err(|_| Exhausted);
            }
        } else {
            let next = self.dfa.next_state_untagged(&states.cache, state, byte);
            if !next.is_unknown() {
                return Ok(next);
            }
        }
        let visits = self.visits.from(states.members.get(&state).copied());
        work.spend(VISIT_WORK * (TRANSITION_VISITS + visits))?;
        self.build(states, state, byte)
    }

    /// Builds a transition, and notes how many members its end has.
    fn build(&self, states: &mut States, state: LazyStateID, byte: u8) -> Result<LazyStateID, Exhausted> {
        let before = states.cache.memory_usage();
        let next = self
            .dfa
            .next_state(&mut states.cache, state, byte)
            .map_err(|_| Exhausted)?;
        if states.cache.clear_count() != states.cleared {
            states.cleared = states.cache.clear_count();
            states.members.clear();
        } else if let Some(bytes) = states.cache.memory_usage().checked_sub(before).filter(|more| *more > 0) {
            // A new state: its transitions, and at least a byte for each member.
            let row = self.dfa.byte_classes().alphabet_len().next_power_of_two() * size_of::<LazyStateID>();
            states.members.insert(next, bytes.saturating_sub(row) as u64);
        }
        Ok(next)
    }
}

impl VisitCounts {
    fn from_nfa(nfa: &NFA) -> Self {
        let edges = |state: &State| match state {
            State::Union { alternates } => alternates.len(),
            // An edge of these is a comparison of bytes.
            State::Sparse(edges) => edges.transitions.len() / 8,
            State::BinaryUnion { .. } => 2,
            _ => 0,
        };
        let mut visits = Self {
            whole: nfa.states().iter().map(|state| 1 + edges(state) as u64).sum(),
            member: Some(0),
        };
        for (id, state) in nfa.states().iter().enumerate() {
            let below = StateID::new(id).ok().and_then(|id| below(nfa, id));
            let member = below.map(|below| (1 + edges(state) + below) as u64);
            visits.member = visits.member.zip(member).map(|(most, one)| most.max(one));
        }
        visits
    }

    /// Returns the visits of a transition from a state of so many members, if they are known.
    fn from(self, members: Option<u64>) -> u64 {
        match members.zip(self.member) {
            Some((members, each)) => members.saturating_mul(each).min(self.whole),
            None => self.whole,
        }
    }
}

/// Returns the edges that lead from a state of the pattern, and on, without a byte; `None` if they
/// are many.
fn below(nfa: &NFA, from: StateID) -> Option<usize> {
    let mut seen = vec![from];
    let (mut next, mut edges) = (0, 0);
    while let Some(id) = seen.get(next).copied() {
        next += 1;
        let pair;
        let ends: &[StateID] = match nfa.state(id) {
            State::Union { alternates } => alternates,
            State::BinaryUnion { alt1, alt2 } => {
                pair = [*alt1, *alt2];
                &pair
            }
            State::Look { next, .. } | State::Capture { next, .. } => std::slice::from_ref(next),
            _ => &[],
        };
        edges += ends.len();
        if edges > MEMBER_VISITS_MAX {
            return None;
        }
        for end in ends {
            if !seen.contains(end) {
                seen.push(*end);
            }
        }
    }
    Some(edges)
}

/// Transitions from matches that a search has paid for.
#[derive(Default)]
struct Known {
    /// Number of times that all states were forgotten.
    cleared: usize,
    transitions: HashSet<(LazyStateID, u8)>,
}

impl Known {
    /// Returns true for a transition that was not paid for.
    fn is_new(&mut self, cleared: usize, from: LazyStateID, class: u8) -> bool {
        if cleared != self.cleared {
            self.cleared = cleared;
            self.transitions.clear();
        }
        self.transitions.insert((from, class))
    }
}
