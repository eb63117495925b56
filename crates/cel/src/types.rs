//! The types of CEL in the checker and in messages (cel-go's `FormatCELType`).

use crate::decl::Decl;
use std::fmt;
use std::sync::Arc;

/// A CEL type.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Any type, checked at run time.
    Dyn,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed 64-bit integer.
    Int,
    /// An unsigned 64-bit integer.
    Uint,
    /// A 64-bit floating-point number.
    Double,
    /// Unicode text.
    String,
    /// A byte sequence.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list with one type of items.
    List(Arc<Type>),
    /// A map: key type and value type.
    Map(Arc<(Type, Type)>),
    /// `optional_type(T)`.
    Optional(Arc<Type>),
    /// The type of a type: `type(int)`.
    Type(Arc<Type>),
    /// An object with declared fields. Types of the same declaration, or of declarations with the
    /// same name, are equal.
    Object(Decl),
    /// A library type by its name: `kubernetes.Quantity`.
    Opaque(&'static str),
    /// A type parameter of a declaration: `A` in `list(A)`.
    Param(&'static str),
    /// A type variable, such as the item type of `[]`. Exists only during checking.
    Var(u32),
    /// The type of an expression with a reported error. Exists only during checking.
    Error,
}

impl Type {
    /// Returns `list(item)`.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// Returns `map(key, value)`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// Returns `optional_type(value)`.
    pub fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    /// Returns the name of the values' run-time type, without type parameters.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Type::Dyn | Type::Var(_) => "dyn",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Duration => "google.protobuf.Duration",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Optional(_) => "optional_type",
            Type::Type(_) => "type",
            Type::Object(decl) => decl.name(),
            Type::Opaque(name) | Type::Param(name) => name,
            Type::Error => "!error!",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Dyn => "dyn",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "timestamp",
            Type::Duration => "duration",
            Type::List(item) => return write!(f, "list({item})"),
            Type::Map(pair) => return write!(f, "map({}, {})", pair.0, pair.1),
            Type::Optional(value) => return write!(f, "optional_type({value})"),
            Type::Type(of) => return write!(f, "type({of})"),
            Type::Object(decl) => decl.name(),
            Type::Opaque(name) | Type::Param(name) => name,
            Type::Var(index) => return write!(f, "_var{index}"),
            Type::Error => "!error!",
        })
    }
}
