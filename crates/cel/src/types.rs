//! The types of CEL, as the checker sees them and as messages print them (cel-go's
//! `FormatCELType`).

use crate::decl::Decl;
use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Anything; checked when it runs.
    Dyn,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A whole number of 64 bits.
    Int,
    /// A whole number of 64 bits without a sign.
    Uint,
    /// A number of 64 bits with a fraction.
    Double,
    /// Unicode text.
    String,
    /// Bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list of one type.
    List(Arc<Type>),
    /// A map: type of keys, type of values.
    Map(Arc<(Type, Type)>),
    /// `optional_type(T)`.
    Optional(Arc<Type>),
    /// The type of a type: `type(int)`.
    Type(Arc<Type>),
    /// An object with declared fields, the same type as another only if it is the same declaration
    /// (or of its name).
    Object(Decl),
    /// A type of a library, by its name: `kubernetes.Quantity`.
    Opaque(&'static str),
    /// A type parameter of a declaration: `A` in `list(A)`.
    Param(&'static str),
    /// A type not known yet, as that of the items of `[]`. Only while an expression is checked.
    Var(u32),
    /// The type of what is wrong, after that was reported. Only while an expression is checked.
    Error,
}

impl Type {
    /// `list(item)`.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// `map(key, value)`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// `optional_type(value)`.
    pub fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    /// The name of the type that values have when an expression runs: without parameters.
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
