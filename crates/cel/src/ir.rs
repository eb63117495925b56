//! The evaluator's expression tree, with names resolved and long chains flat.
//!
//! Lowered once from the parser's checked tree. Chains (`a + b + c`, `x.y.z`, `p && q && r`, `c ? t
//! : d ? u : e`) are vectors rather than left- or right-leaning trees, so that the depth of the
//! tree is the visible nesting, and `NODE_DEPTH_MAX` bounds every recursion over it.

use crate::functions::Function;
use crate::operator::Operator;
use crate::value::Const;
use insula_goformat::regexp::Regexp;
use std::sync::Arc;

/// Depth of a tree. Evaluation recurses once a level and must fit a 2 MiB stack in a debug build.
pub(crate) const NODE_DEPTH_MAX: usize = 128;

#[derive(Debug)]
pub(crate) enum Node {
    Const(Const),
    /// A variable of the activation, by slot.
    Variable(usize),
    /// A comprehension variable, by its index on the evaluator's stack.
    Local(usize),
    Access {
        base: Box<Node>,
        steps: Box<[Step]>,
    },
    /// `has(base.field)`; `base` is evaluated like any expression.
    Has {
        base: Box<Node>,
        field: Field,
    },
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<[Node]>),
    Or(Box<[Node]>),
    Conditional {
        arms: Box<[(Node, Node)]>,
        otherwise: Box<Node>,
    },
    /// `first op a op b …`, applied from the left.
    Chain {
        first: Box<Node>,
        rest: Box<[Link]>,
    },
    List(Box<[Element]>),
    Map(Box<[Entry]>),
    /// `JSONPatch{op: 'add'}`: a map that is never a constant and has its own price.
    Object(Box<[Entry]>),
    Call {
        function: &'static Function,
        arguments: Box<[Node]>,
        price: Price,
    },
    /// `x.matches('constant')`, compiled with the program.
    Matches {
        target: Box<Node>,
        pattern: Arc<Regexp>,
        pattern_bytes: usize,
    },
    Fold(Box<Fold>),
    /// A named value, as `sortBy` makes: `x = init; body`.
    Bind {
        init: Box<Node>,
        body: Box<Node>,
    },
    /// `target.optMap(x, body)` and `optFlatMap`: the body reads the value as a local.
    OptionalMap {
        target: Box<Node>,
        body: Box<Node>,
        flat: bool,
        /// True if the body reads the local; cel-go evaluates its value only then.
        read: bool,
    },
    /// `target.orValue(alternative)` and `target.or(alternative)`: the alternative is evaluated
    /// only if needed.
    OptionalOr {
        target: Box<Node>,
        alternative: Box<Node>,
        kind: OptionalOr,
    },
    /// `target.hasValue()`.
    OptionalHasValue(Box<Node>),
}

/// Number of overloads of a function or operator that the types of the arguments allow. cel-go
/// prices most calls by their overload; a call resolved only at run time costs one unit, whatever
/// its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overloads {
    One,
    Several,
}

/// Pricing rule of a call, looked up by name when a program is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Price {
    /// One unit.
    Call,
    Authorization,
    Selector,
    /// A unit for each value in the first argument.
    Traversal,
    /// A unit for each argument, or each item of a single list.
    Compared,
    /// A tenth of the result's size.
    TenthOfResult,
    /// A tenth of the first argument's size.
    Tenth,
    /// A tenth of the first argument's size if it is a text.
    TenthOfText,
    TenthOfBytes,
    /// A fifth of the first argument's size.
    Fifth,
    /// A fifth of the result's size.
    Joined,
    Matching,
    Contains,
    ContainsIp,
    ContainsCidr,
    Validate,
    /// Each item of one list with each of the other, times this factor.
    Pairs(u64),
    /// The items of the result.
    List,
    Flatten,
    SelfCompared,
}

/// One operator of a chain and its right operand.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) operator: Operator,
    pub(crate) operand: Node,
    pub(crate) overloads: Overloads,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionalOr {
    /// `orValue`: the result is a value.
    Value,
    /// `or`: the result is an optional.
    Optional,
}

/// A field name as written and as stored (with escapes such as `__dot__` decoded).
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Name in the object.
    pub(crate) name: Box<str>,
    /// Name as written, if it differs: map keys have no escapes, only declared properties.
    pub(crate) written: Option<Box<str>>,
}

#[derive(Debug)]
pub(crate) enum Step {
    /// `.field`, and `.?field` when optional.
    Field { field: Field, optional: bool },
    /// `[index]`, and `[?index]` when optional.
    Index { index: Node, optional: bool },
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) node: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

/// A comprehension. A single variable is an element of a list or a key of a map; two variables are
/// index or key, and value.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) variables: Variables,
    pub(crate) kind: FoldKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variables {
    One,
    Two,
}

#[derive(Debug)]
pub(crate) enum FoldKind {
    All(Node),
    Exists(Node),
    ExistsOne(Node),
    /// `map` and `filter`: a list of the `transform`s, or of the variable itself, where `condition`
    /// holds.
    List {
        condition: Option<Node>,
        transform: Option<Node>,
    },
    /// `transformMap`: keys stay, values are transformed.
    MapValues {
        condition: Option<Node>,
        transform: Node,
    },
    /// `transformMapEntry`: merges the entries of the maps that the transforms give.
    MapEntries {
        condition: Option<Node>,
        transform: Node,
    },
    /// `fold`: the accumulator is a local before the loop's variables.
    Accumulate {
        init: Node,
        step: Node,
    },
}
