//! Cost of expressions for objects of a given size. The lengths of all lists, maps and texts of an
//! object share one budget of bytes, so that schemas need no bounds: a loop over the items of a
//! list that reads a text of each item reads at most the object's bytes.
//!
//! The estimate puts all bytes at one level of nesting, once for each level, and adds the costs. An
//! expression that is linear in the object has a cost that is linear in the bytes. Products of
//! values at different levels may be estimated too low; the budget at run time bounds them.

use super::expression::Names;
use super::size::{LARGEST_OBJECT_COST, OBJECT_BYTES_MAX, SizedCost, depth};
use insula_cel::{CALL_COST_MAX, COST_PER_BYTE, Decl, Env, OBJECT_COST_MAX, Program, Type};

/// Sizes of objects for which the cost is estimated, in bytes. Smaller ones show costs that bounds
/// of the schema cap.
const OBJECT_BYTES: [u64; 6] = [
    OBJECT_BYTES_MAX,
    OBJECT_BYTES_MAX >> 3,
    OBJECT_BYTES_MAX >> 6,
    OBJECT_BYTES_MAX >> 9,
    OBJECT_BYTES_MAX >> 12,
    1,
];

impl Names<'_> {
    /// Estimates the cost of an expression by the size of the object.
    pub(super) fn sized_cost(&self, text: &str, program: &Program) -> SizedCost {
        let mut found = SizedCost { cost: 0, sure: true };
        for bytes in OBJECT_BYTES {
            let cost = self.cost_at(text, program, bytes);
            let grown = bytes.saturating_mul(COST_PER_BYTE);
            found.sure &= cost <= CALL_COST_MAX + grown;
            let limit = OBJECT_COST_MAX + grown;
            let excess = u128::from(cost) * u128::from(LARGEST_OBJECT_COST) / u128::from(limit);
            let excess = u64::try_from(excess).unwrap_or(u64::MAX);
            if bytes == OBJECT_BYTES_MAX || excess > LARGEST_OBJECT_COST {
                found.cost = found.cost.max(excess);
            }
        }
        found
    }

    fn cost_at(&self, text: &str, program: &Program, bytes: u64) -> u64 {
        let root = self.from.declaration();
        let mut sum = 0_u64;
        for level in 0..root.levels() {
            let env = self.env_at(program, &root, level, bytes);
            let Ok(estimate) = Program::estimate_in(text, &env) else {
                return u64::MAX;
            };
            let size = |depth: usize| if depth == level { bytes } else { 1 };
            let rounds = self.loops.rounds.iter().map(|(depth, most)| size(*depth).min(*most));
            let times = rounds.fold(1, u64::saturating_mul);
            sum = sum.saturating_add(estimate.max.saturating_mul(times));
        }
        sum
    }

    fn env_at(&self, program: &Program, root: &Decl, level: usize, bytes: u64) -> Env {
        let read = |name: &str| program.references().iter().any(|reference| reference.variable == name);
        let around = depth(&self.this.path);
        let sized = |name: &str, decl: &Decl, depth: usize| match read(name) {
            true => decl.sized_at(depth, level, bytes),
            false => decl.clone(),
        };
        let mut env = self.env().with_largest(bytes);
        env = env.with("self", sized("self", &self.this.decl, around));
        if self.has_object() {
            env = env.with(self.from.name, sized(self.from.name, root, 0));
        }
        for (name, ty) in &self.variables {
            // A key is at the level of its map's values.
            let decl = Decl::scalar(ty.clone());
            let depth = self.loops.rounds.len();
            env = env.with(
                name,
                if *ty == Type::String {
                    decl.sized_at(depth, level, bytes)
                } else {
                    decl
                },
            );
        }
        env
    }
}
