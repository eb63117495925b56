//! The evaluator's expression tree, with names resolved and long chains flat.
//!
//! Lowered once from the parser's checked tree. Chains (`a + b + c`, `x.y.z`, `p && q && r`, `c ? t
//! : d ? u : e`) are vectors rather than left- or right-leaning trees, so that the depth of the
//! tree is the visible nesting, and `NODE_DEPTH_MAX` bounds every recursion over it.

use crate::functions::Function;
use crate::price::Price;
use jiff::civil::DateTime;
use serde_json::Value;
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
        pattern: Arc<regex::Regex>,
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

#[derive(Debug, Clone)]
pub(crate) enum Const {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Arc<[u8]>),
    Type(&'static str),
    Timestamp(DateTime),
    Duration(i64),
    /// A list or a map of constants that JSON can hold.
    Json(Box<Value>),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl Operator {
    /// Returns the operator of a call in the parser's tree.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "_+_" => Self::Add,
            "_-_" => Self::Subtract,
            "_*_" => Self::Multiply,
            "_/_" => Self::Divide,
            "_%_" => Self::Modulo,
            "_==_" => Self::Equal,
            "_!=_" => Self::NotEqual,
            "_<_" => Self::Less,
            "_<=_" => Self::LessOrEqual,
            "_>_" => Self::Greater,
            "_>=_" => Self::GreaterOrEqual,
            "@in" => Self::In,
            _ => return None,
        })
    }

    /// Returns true for `+ - * / %`.
    pub(crate) fn is_arithmetic(self) -> bool {
        matches!(
            self,
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Modulo
        )
    }

    /// Returns cel-go's name of the operator in errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Modulo => "_%_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessOrEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterOrEqual => "_>=_",
            Self::In => "@in",
        }
    }
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
}
