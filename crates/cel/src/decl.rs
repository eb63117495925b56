//! Declarations of values: their types and the bounds that a schema gives. The checker reads the
//! types, the cost estimate the bounds, and the evaluator reads values by their declaration (a text
//! of format `date-time` is a timestamp). Callers build declarations from schemas (`SchemaDeclType`
//! in Kubernetes).

use crate::types::Type;
use std::sync::Arc;

/// Declaration of a value: immutable, shared, cheap to clone.
#[derive(Debug, Clone)]
pub struct Decl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shape: Shape,
    max_elements: Option<u64>,
    min_bytes: u64,
}

/// Structure of a declared value.
#[derive(Debug)]
pub enum Shape {
    /// A scalar, `dyn`, or a type of a library.
    Scalar(Type),
    /// A list.
    List {
        /// Declaration of each item.
        items: Decl,
        /// Identity of items, which decides the meaning of `==` and `+`.
        kind: ListKind,
    },
    /// A map from strings.
    Map {
        /// Declaration of each value.
        values: Decl,
    },
    /// An object of declared fields.
    Object {
        /// The type's name in messages.
        name: Box<str>,
        /// The fields, sorted by their stored names.
        fields: Vec<Field>,
    },
}

/// A declared field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Stored name in the object.
    pub name: Box<str>,
    /// Name in expressions (`__namespace__`, `a__dash__b`).
    pub written: Box<str>,
    /// Declaration of the field's value.
    pub decl: Decl,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListKind {
    /// Ordered; the list is one value.
    #[default]
    Atomic,
    /// Equal in any order; `+` is the union.
    Set,
    /// Equal by these fields of the items, in any order; `+` overwrites items of the same keys.
    Map(Vec<String>),
}

impl Decl {
    fn new(shape: Shape) -> Decl {
        Decl(Arc::new(Inner {
            shape,
            max_elements: None,
            min_bytes: 0,
        }))
    }

    /// Declares a value of any type.
    pub fn dynamic() -> Decl {
        Decl::scalar(Type::Dyn)
    }

    /// Declares one value of a type.
    pub fn scalar(ty: Type) -> Decl {
        Decl::new(Shape::Scalar(ty))
    }

    /// Declares a list of `items`.
    pub fn list(items: Decl, kind: ListKind) -> Decl {
        Decl::new(Shape::List { items, kind })
    }

    /// Declares a map from strings to `values`.
    pub fn map(values: Decl) -> Decl {
        Decl::new(Shape::Map { values })
    }

    /// Declares an object with the type name `name`.
    pub fn object(name: &str, mut fields: Vec<Field>) -> Decl {
        fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Decl::new(Shape::Object {
            name: name.into(),
            fields,
        })
    }

    /// Adds bounds. `max_elements` counts bytes of a string, items of a list or entries of a map;
    /// `None` if the schema sets no bound. `min_bytes` is the size of the smallest JSON text of
    /// such a value.
    #[must_use]
    pub fn bounded(self, max_elements: Option<u64>, min_bytes: u64) -> Decl {
        let inner = match Arc::try_unwrap(self.0) {
            Ok(inner) => inner,
            Err(shared) => Inner {
                shape: shared.shape.duplicate(),
                max_elements: None,
                min_bytes: 0,
            },
        };
        Decl(Arc::new(Inner {
            shape: inner.shape,
            max_elements,
            min_bytes,
        }))
    }

    /// Returns the structure.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// Returns the most bytes of the string, items of the list or entries of the map; `None`
    /// without a bound.
    pub fn max_elements(&self) -> Option<u64> {
        self.0.max_elements
    }

    /// Returns the bytes of the smallest JSON text of such a value.
    pub fn min_bytes(&self) -> u64 {
        self.0.min_bytes
    }

    /// Returns this declaration for objects whose bytes all lie at one level of nesting: lists,
    /// maps and texts at `level` have at most `bytes` parts, those at other levels at most one.
    /// `depth` is the number of lists and maps around this value. Declared bounds hold as well.
    #[must_use]
    pub fn sized_at(&self, depth: usize, level: usize, bytes: u64) -> Decl {
        let inner = |decl: &Decl| decl.sized_at(depth + 1, level, bytes);
        let shape = match &self.0.shape {
            Shape::Scalar(Type::String | Type::Bytes | Type::Dyn) => self.0.shape.duplicate(),
            Shape::Scalar(_) => return self.clone(),
            Shape::List { items, kind } => Shape::List {
                items: inner(items),
                kind: kind.clone(),
            },
            Shape::Map { values } => Shape::Map { values: inner(values) },
            Shape::Object { name, fields } => {
                let field = |field: &Field| Field {
                    decl: field.decl.sized_at(depth, level, bytes),
                    ..field.clone()
                };
                let shape = Shape::Object {
                    name: name.clone(),
                    fields: fields.iter().map(field).collect(),
                };
                return Decl(Arc::new(Inner { shape, ..*self.0 }));
            }
        };
        let most = if depth == level { bytes } else { 1 };
        Decl(Arc::new(Inner {
            shape,
            max_elements: Some(self.0.max_elements.map_or(most, |bound| bound.min(most))),
            min_bytes: self.0.min_bytes,
        }))
    }

    /// Returns the number of levels of lists, maps and texts, one inside the other.
    pub fn levels(&self) -> usize {
        match &self.0.shape {
            Shape::Scalar(_) => 1,
            Shape::List { items: inner, .. } | Shape::Map { values: inner } => 1 + inner.levels(),
            Shape::Object { fields, .. } => fields.iter().map(|field| field.decl.levels()).max().unwrap_or(1),
        }
    }

    /// Returns the type.
    pub fn ty(&self) -> Type {
        match &self.0.shape {
            Shape::Scalar(ty) => ty.clone(),
            Shape::List { items, .. } => Type::list(items.ty()),
            Shape::Map { values } => Type::map(Type::String, values.ty()),
            Shape::Object { .. } => Type::Object(self.clone()),
        }
    }

    /// Returns the name of an object's type; `object` for other types.
    pub fn name(&self) -> &str {
        match &self.0.shape {
            Shape::Object { name, .. } => name,
            _ => "object",
        }
    }

    /// Returns a declared field by its stored name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let Shape::Object { fields, .. } = &self.0.shape else {
            return None;
        };
        let found = fields.binary_search_by(|f| (*f.name).cmp(name)).ok()?;
        fields.get(found)
    }

    /// Returns a declared field by its name in expressions.
    pub fn written(&self, name: &str) -> Option<&Field> {
        match &self.0.shape {
            Shape::Object { fields, .. } => fields.iter().find(|f| *f.written == *name),
            _ => None,
        }
    }
}

impl Shape {
    fn duplicate(&self) -> Shape {
        match self {
            Shape::Scalar(ty) => Shape::Scalar(ty.clone()),
            Shape::List { items, kind } => Shape::List {
                items: items.clone(),
                kind: kind.clone(),
            },
            Shape::Map { values } => Shape::Map { values: values.clone() },
            Shape::Object { name, fields } => Shape::Object {
                name: name.clone(),
                fields: fields.clone(),
            },
        }
    }
}

impl PartialEq for Decl {
    /// Compares identity, or the names of object types (two compilations of one schema).
    fn eq(&self, other: &Decl) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        match (&self.0.shape, &other.0.shape) {
            (Shape::Object { name, .. }, Shape::Object { name: theirs, .. }) => name == theirs,
            _ => false,
        }
    }
}
