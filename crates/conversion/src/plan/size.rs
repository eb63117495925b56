//! Size of objects, and the cost of expressions that grows with it.

use crate::path::{Path, Segment};
use insula_cel::{COST_PER_BYTE, OBJECT_COST_MAX};

/// Bytes of the largest object: the limit of a request.
pub(crate) const OBJECT_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// Cost limit of the expressions of the largest object, in CEL cost units.
pub(crate) const LARGEST_OBJECT_COST: u64 = OBJECT_COST_MAX + COST_PER_BYTE * OBJECT_BYTES_MAX;

/// Estimated cost of an expression over all its runs for one object.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizedCost {
    /// Cost for the largest object, in CEL cost units. A smaller object that exceeds its budget by
    /// a larger factor raises it by that factor.
    pub(super) cost: u64,
    /// True if every single run is within the budget of a call at every size.
    pub(super) sure: bool,
}

/// Returns the number of lists and maps around the value at a path.
pub(super) fn depth(path: &Path) -> usize {
    path.segments()
        .iter()
        .filter(|s| !matches!(s, Segment::Field(_)))
        .count()
}
