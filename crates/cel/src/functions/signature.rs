//! Function signatures, parsed from the text beside each implementation.
//!
//! A text such as `string_char_at_int: string.(int) -> string` is one overload: its id, the
//! receiver if there is one, the arguments and the result. A single capital letter is a type
//! parameter, a dotted name a type of a library.

use super::tables;
use crate::types::Type;
use std::collections::HashMap;
use std::sync::LazyLock;

/// One overload of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// Id, unique among all functions.
    pub(crate) id: &'static str,
    /// True if the first argument is the receiver.
    pub(crate) receiver: bool,
    /// Types of the arguments, with the receiver's first.
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
    /// Names of the type parameters, each once.
    pub(crate) type_params: Vec<&'static str>,
}

/// Returns the overloads of a function by its full name (`charAt`, `sets.contains`); empty for
/// unknown names.
pub(crate) fn overloads(name: &str) -> &'static [Overload] {
    static OVERLOADS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
        let mut map: HashMap<_, Vec<_>> = HashMap::new();
        for function in tables().into_iter().flatten() {
            let known = map.entry(function.name).or_default();
            known.extend(function.signatures.iter().filter_map(|text| parse(text)));
        }
        map
    });
    OVERLOADS.get(name).map_or(&[], Vec::as_slice)
}

/// Returns true for functions of mutating policies only.
pub(crate) fn is_for_patches(name: &str) -> bool {
    name.starts_with("jsonpatch.")
}

/// Returns true for functions of conversion rules only.
pub(crate) fn is_for_conversion(name: &str) -> bool {
    ["math.", "json.", "durations."]
        .iter()
        .any(|library| name.starts_with(library))
}

/// Parses the text of an overload.
pub(crate) fn parse(text: &'static str) -> Option<Overload> {
    let (id, text) = text.split_once(": ")?;
    let (call, result) = text.rsplit_once(" -> ")?;
    let (receiver, inside) = match call.strip_prefix('(') {
        Some(inside) => (None, inside),
        None => {
            let (receiver, inside) = call.split_once(".(")?;
            (Some(receiver), inside)
        }
    };
    let mut type_params = Vec::new();
    let mut arguments = Vec::new();
    if let Some(receiver) = receiver {
        arguments.push(whole_type(receiver, &mut type_params)?);
    }
    let mut rest = inside.strip_suffix(')')?;
    while !rest.is_empty() {
        let (argument, after) = a_type(rest, &mut type_params)?;
        arguments.push(argument);
        rest = after.strip_prefix(", ").unwrap_or(after);
    }
    Some(Overload {
        id,
        receiver: receiver.is_some(),
        arguments,
        result: whole_type(result, &mut type_params)?,
        type_params,
    })
}

fn whole_type(text: &'static str, params: &mut Vec<&'static str>) -> Option<Type> {
    let (ty, rest) = a_type(text, params)?;
    rest.is_empty().then_some(ty)
}

/// Parses the type at the start. Returns it with the text after it.
fn a_type(text: &'static str, params: &mut Vec<&'static str>) -> Option<(Type, &'static str)> {
    let end = text.find(['(', ')', ',']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let ty = match name {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "list" | "map" | "optional_type" | "type" => {
            let (first, mut rest) = a_type(rest.strip_prefix('(')?, params)?;
            let ty = match name {
                "list" => Type::list(first),
                "optional_type" => Type::optional(first),
                "type" => Type::Type(first.into()),
                _ => {
                    let (second, after) = a_type(rest.strip_prefix(", ")?, params)?;
                    rest = after;
                    Type::map(first, second)
                }
            };
            return Some((ty, rest.strip_prefix(')')?));
        }
        _ if name.len() == 1 => {
            if !params.contains(&name) {
                params.push(name);
            }
            Type::Param(name)
        }
        _ if name.contains('.') => Type::Opaque(name),
        _ => return None,
    };
    Some((ty, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::Style;
    use std::collections::HashSet;

    #[test]
    fn signatures_are_read() {
        let shown = |o: &Overload| {
            format!(
                "{} {} {:?} {} {:?}",
                o.id, o.receiver, o.arguments, o.result, o.type_params
            )
        };
        assert_eq!(
            overloads("@sortByAssociatedKeys").first().map(shown).as_deref(),
            Some("list_int_sortByAssociatedKeys true [List(Param(\"T\")), List(Int)] list(T) [\"T\"]")
        );
        for function in tables().into_iter().flatten() {
            assert!(!function.signatures.is_empty(), "{}", function.name);
            for text in function.signatures {
                let Some(overload) = parse(text) else {
                    panic!("{}: {text}", function.name)
                };
                match function.style {
                    Style::Both => {}
                    style => assert_eq!(overload.receiver, style == Style::Member, "{text}"),
                }
            }
        }
    }

    #[test]
    fn ids_are_unique() {
        let mut ids = HashSet::new();
        for text in tables().into_iter().flatten().flat_map(|f| f.signatures) {
            assert!(ids.insert(text.split(':').next()), "{text}");
        }
    }
}
