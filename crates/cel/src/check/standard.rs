//! Signatures of operators and of the internals of macros, and names that stand for types.
//! Functions declare their signatures beside their code, in `functions`.

use crate::functions::signature::{Overload, parse};
use crate::types::Type;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Returns the overloads of an operator or of a macro's internal function; empty for other names.
pub(super) fn overloads(name: &str) -> &'static [Overload] {
    static OVERLOADS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
        let comparisons = COMPARISONS
            .iter()
            .map(|(operator, texts)| (*operator, texts.as_slice()));
        OPERATORS
            .iter()
            .copied()
            .chain(comparisons)
            .map(|(operator, texts)| (operator, texts.iter().filter_map(|text| parse(text)).collect()))
            .collect()
    });
    OVERLOADS.get(name).map_or(&[], Vec::as_slice)
}

/// Returns the type that a name stands for: `int`, `google.protobuf.Timestamp`.
pub(super) fn named_type(name: &str) -> Option<Type> {
    let ty = match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "list" => Type::list(Type::Param("A")),
        "map" => Type::map(Type::Param("A"), Type::Param("B")),
        // As names, `type` and `optional_type` have no parameter.
        "type" => Type::Opaque("type"),
        "optional_type" => Type::Opaque("optional_type"),
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    };
    Some(Type::Type(Arc::new(ty)))
}

type Row = (&'static str, &'static [&'static str]);

static OPERATORS: &[Row] = &[
    ("_?_:_", &["conditional: (bool, A, A) -> A"]),
    ("_&&_", &["logical_and: (bool, bool) -> bool"]),
    ("_||_", &["logical_or: (bool, bool) -> bool"]),
    ("!_", &["logical_not: (bool) -> bool"]),
    ("@not_strictly_false", &["not_strictly_false: (bool) -> bool"]),
    ("_==_", &["equals: (A, A) -> bool"]),
    ("_!=_", &["not_equals: (A, A) -> bool"]),
    (
        "_+_",
        &[
            "add_bytes: (bytes, bytes) -> bytes",
            "add_double: (double, double) -> double",
            "add_duration_duration: (duration, duration) -> duration",
            "add_duration_timestamp: (duration, timestamp) -> timestamp",
            "add_timestamp_duration: (timestamp, duration) -> timestamp",
            "add_int64: (int, int) -> int",
            "add_list: (list(A), list(A)) -> list(A)",
            "add_string: (string, string) -> string",
            "add_uint64: (uint, uint) -> uint",
        ],
    ),
    (
        "_-_",
        &[
            "subtract_double: (double, double) -> double",
            "subtract_duration_duration: (duration, duration) -> duration",
            "subtract_int64: (int, int) -> int",
            "subtract_timestamp_duration: (timestamp, duration) -> timestamp",
            "subtract_timestamp_timestamp: (timestamp, timestamp) -> duration",
            "subtract_uint64: (uint, uint) -> uint",
        ],
    ),
    (
        "_*_",
        &[
            "multiply_double: (double, double) -> double",
            "multiply_int64: (int, int) -> int",
            "multiply_uint64: (uint, uint) -> uint",
        ],
    ),
    (
        "_/_",
        &[
            "divide_double: (double, double) -> double",
            "divide_int64: (int, int) -> int",
            "divide_uint64: (uint, uint) -> uint",
        ],
    ),
    (
        "_%_",
        &["modulo_int64: (int, int) -> int", "modulo_uint64: (uint, uint) -> uint"],
    ),
    (
        "-_",
        &["negate_double: (double) -> double", "negate_int64: (int) -> int"],
    ),
    (
        "@in",
        &["in_list: (A, list(A)) -> bool", "in_map: (A, map(A, B)) -> bool"],
    ),
    (
        "_[_]",
        &[
            "index_list: (list(A), int) -> A",
            "index_map: (map(A, B), A) -> B",
            "optional_list_index_int: (optional_type(list(V)), int) -> optional_type(V)",
            "optional_map_index_value: (optional_type(map(K, V)), K) -> optional_type(V)",
        ],
    ),
    (
        "_[?_]",
        &[
            "list_optindex_optional_int: (list(V), int) -> optional_type(V)",
            "optional_list_optindex_optional_int: (optional_type(list(V)), int) -> optional_type(V)",
            "map_optindex_optional_value: (map(K, V), K) -> optional_type(V)",
            "optional_map_optindex_optional_value: (optional_type(map(K, V)), K) -> optional_type(V)",
        ],
    ),
    (
        "cel.@mapInsert",
        &[
            "@mapInsert_map_key_value: (map(K, V), K, V) -> map(K, V)",
            "@mapInsert_map_map: (map(K, V), map(K, V)) -> map(K, V)",
        ],
    ),
];

macro_rules! comparison {
    ($operator:literal, $id:literal) => {
        (
            $operator,
            [
                concat!($id, "_bool: (bool, bool) -> bool"),
                concat!($id, "_int64: (int, int) -> bool"),
                concat!($id, "_int64_double: (int, double) -> bool"),
                concat!($id, "_int64_uint64: (int, uint) -> bool"),
                concat!($id, "_uint64: (uint, uint) -> bool"),
                concat!($id, "_uint64_double: (uint, double) -> bool"),
                concat!($id, "_uint64_int64: (uint, int) -> bool"),
                concat!($id, "_double: (double, double) -> bool"),
                concat!($id, "_double_int64: (double, int) -> bool"),
                concat!($id, "_double_uint64: (double, uint) -> bool"),
                concat!($id, "_string: (string, string) -> bool"),
                concat!($id, "_bytes: (bytes, bytes) -> bool"),
                concat!($id, "_timestamp: (timestamp, timestamp) -> bool"),
                concat!($id, "_duration: (duration, duration) -> bool"),
            ],
        )
    };
}

/// Comparisons of numbers of different types.
static COMPARISONS: &[(&str, [&str; 14])] = &[
    comparison!("_<_", "less"),
    comparison!("_<=_", "less_equals"),
    comparison!("_>_", "greater"),
    comparison!("_>=_", "greater_equals"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_a_signature() {
        for (operator, texts) in OPERATORS {
            assert_eq!(overloads(operator).len(), texts.len(), "{operator}");
        }
        for (operator, texts) in COMPARISONS {
            assert_eq!(overloads(operator).len(), texts.len(), "{operator}");
        }
    }
}
