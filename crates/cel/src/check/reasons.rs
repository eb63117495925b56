//! Overloads that have a value for all arguments of their types, and the reasons why others may
//! fail.

pub(super) const MISSING: &str = "it may be missing";
pub(super) const OTHER_TYPE: &str = "what it is given may be of another type";

/// Renders a function or operator as it is written.
pub(super) fn shown(name: &str) -> &str {
    match name {
        "_[_]" => "[]",
        "_[?_]" => "[?]",
        "_?._" => ".?",
        "@in" => "in",
        "cel.@mapInsert" => "transformMap",
        "@sortByAssociatedKeys" => "sortBy",
        name => name
            .strip_prefix('_')
            .map_or(name, |n| n.trim_end_matches('_'))
            .trim_end_matches('_'),
    }
}

/// Returns true if an overload has a value for all arguments of its types.
pub(super) fn is_total(id: &str) -> bool {
    let comparison = ["less_", "greater_"].iter().any(|prefix| id.starts_with(prefix));
    comparison
        || is_total_operator(id)
        || is_total_text(id)
        || is_total_value(id)
        || is_total_collection(id)
        || is_total_number(id)
}

/// Returns true for total functions of the conversion rules' library.
fn is_total_number(id: &str) -> bool {
    let integers = ["double", "int", "uint", "int_int", "uint_uint", "int_uint", "uint_int"];
    let of_integers = |prefix: &str| id.strip_prefix(prefix).is_some_and(|rest| integers.contains(&rest));
    of_integers("math_@max_")
        || of_integers("math_@min_")
        || [
            "ceil", "floor", "round", "trunc", "isInf", "isNaN", "isFinite", "sign", "sqrt", "bitAnd", "bitOr",
            "bitXor", "bitNot",
        ]
        .iter()
        .any(|name| {
            id.strip_prefix("math_")
                .is_some_and(|rest| rest.split('_').next() == Some(name))
        })
        || matches!(id, "math_abs_double" | "math_abs_uint" | "durations_format")
}

fn is_total_operator(id: &str) -> bool {
    matches!(
        id,
        "logical_and"
            | "logical_or"
            | "logical_not"
            | "not_strictly_false"
            | "equals"
            | "not_equals"
            | "add_string"
            | "add_bytes"
            | "add_list"
            | "in_list"
            | "in_map"
            | "negate_double"
            | "select_optional_field"
            | "optional_list_index_int"
            | "optional_map_index_value"
            | "list_optindex_optional_int"
            | "optional_list_optindex_optional_int"
            | "map_optindex_optional_value"
            | "optional_map_optindex_optional_value"
    )
}

fn is_total_text(id: &str) -> bool {
    matches!(
        id,
        "contains_string"
            | "starts_with_string"
            | "ends_with_string"
            | "string_lower_ascii"
            | "string_upper_ascii"
            | "string_trim"
            | "string_split_string"
            | "string_split_string_int"
            | "string_replace_string_string"
            | "string_replace_string_string_int"
            | "string_index_of_string"
            | "string_last_index_of_string"
            | "list_join"
            | "list_join_string"
            | "strings_quote"
            | "string_jsonpatch_escapeKey_string"
            | "is_ip"
            | "is_cidr"
            | "is_url_string"
            | "is_quantity_string"
            | "is_semver_string"
            | "is_semver_string_bool"
    )
}

/// Returns true for total conversions and total functions of library types.
fn is_total_value(id: &str) -> bool {
    matches!(
        id,
        "to_dyn"
            | "type"
            | "int64_to_int64"
            | "duration_to_int64"
            | "timestamp_to_int64"
            | "uint64_to_uint64"
            | "double_to_double"
            | "int64_to_double"
            | "uint64_to_double"
            | "string_to_string"
            | "bool_to_string"
            | "double_to_string"
            | "duration_to_string"
            | "int64_to_string"
            | "timestamp_to_string"
            | "uint64_to_string"
            | "ip_to_string"
            | "cidr_to_string"
            | "bool_to_bool"
            | "bytes_to_bytes"
            | "string_to_bytes"
            | "timestamp_to_timestamp"
            | "duration_to_duration"
            | "timestamp_to_year"
            | "timestamp_to_month"
            | "timestamp_to_day_of_year"
            | "timestamp_to_day_of_month"
            | "timestamp_to_day_of_month_1_based"
            | "timestamp_to_day_of_week"
            | "timestamp_to_hours"
            | "timestamp_to_minutes"
            | "timestamp_to_seconds"
            | "timestamp_to_milliseconds"
            | "duration_to_hours"
            | "duration_to_minutes"
            | "duration_to_seconds"
            | "duration_to_milliseconds"
            | "optional_of"
            | "optional_none"
            | "optional_ofNonZeroValue"
            | "optional_hasValue"
            | "optional_or_optional"
            | "optional_orValue_value"
    )
}

fn is_total_collection(id: &str) -> bool {
    id.starts_with("size_")
        || id.ends_with("_size")
        || id.ends_with("_is_sorted_bool")
        || id.ends_with("_sort")
        || matches!(
            id,
            "list_reverse"
                | "list_distinct"
                | "list_flatten"
                | "list_first"
                | "list_last"
                | "list_a_index_of_int"
                | "list_a_last_index_of_int"
                | "list_sets_contains_list"
                | "list_sets_equivalent_list"
                | "list_sets_intersects_list"
                | "optional_unwrap"
                | "optional_unwrapOpt"
        )
}

/// Returns the reason why an overload may have no value.
pub(super) fn why(id: &str) -> &'static str {
    match id {
        "string_to_int64" | "string_to_uint64" | "string_to_double" => "not every text is a number",
        "string_to_bool" => "not every text is true or false",
        "string_to_timestamp" => "not every text is a time",
        "string_to_duration" => "not every text is a duration",
        "string_to_quantity" => "not every text is a quantity",
        "string_to_ip" => "not every text is an address",
        "string_to_cidr" => "not every text is a range of addresses",
        "string_to_url" => "not every text is a URL",
        "string_to_semver" | "string_bool_to_semver" => "not every text is a version",
        "bytes_to_string" => "not all bytes are UTF-8",
        "optional_value" => "the optional may have none",
        "index_list" => "the list may have no such item",
        "index_map" => MISSING,
        "string_char_at_int" | "string_substring_int" | "string_substring_int_int" | "list_slice" => {
            "the position may be outside"
        }
        "@mapInsert_map_key_value" | "@mapInsert_map_map" => "two keys may be equal",
        "string_format" => "the format may not fit its arguments",
        "json_decode_string" => "not every text is JSON",
        "json_encode" => "not every value has a JSON form",
        "yaml_decode_string" => "not every text is YAML",
        "yaml_encode" => "not every value has a YAML form",
        "math_abs_int" | "durations_from_seconds_int" | "durations_from_seconds_double" => {
            "the result may be too large"
        }
        _ => why_of_kind(id),
    }
}

fn why_of_kind(id: &str) -> &'static str {
    if id.starts_with("divide_") || id.starts_with("modulo_") {
        return "the divisor may be zero, or the result too large";
    }
    if ["add_", "subtract_", "multiply_", "negate_"]
        .iter()
        .any(|p| id.starts_with(p))
        || id.contains("_sum_")
    {
        return "the result may be too large";
    }
    if id.starts_with("math_bitShift") {
        return "the offset may be negative";
    }
    if id.starts_with("math_@") && !id.contains("_list_") {
        return "a number may be NaN";
    }
    if id.contains("_min_") || id.contains("_max_") || id.starts_with("math_@") {
        return "the list may be empty";
    }
    if id.starts_with("matches") || id.starts_with("string_find") {
        return "the pattern may be invalid";
    }
    if id.contains("with_tz") || id.ends_with("_tz") {
        return "there may be no such time zone";
    }
    "not every argument has a result"
}
