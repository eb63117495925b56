//! Declarations: what is known of a value before it is seen. Its type, and the bounds that its
//! schema gives; the checker reads the one, the estimate of costs the other, and the evaluator
//! reads values by them (a text of format `date-time` is a timestamp). Built from a schema by
//! whoever knows schemas (`SchemaDeclType` in Kubernetes).

use crate::types::Type;
use std::sync::Arc;

/// A declaration. Immutable, shared, cheap to clone.
#[derive(Debug, Clone)]
pub struct Decl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shape: Shape,
    max_elements: Option<u64>,
    min_bytes: u64,
}

/// What a declared value is made of.
#[derive(Debug)]
pub enum Shape {
    /// One value: a scalar, `dyn`, or a type of a library.
    Scalar(Type),
    /// A list.
    List {
        /// Each item.
        items: Decl,
        /// How items are told apart, which decides what `==` and `+` mean.
        kind: ListKind,
    },
    /// A map from strings.
    Map {
        /// Each value.
        values: Decl,
    },
    /// An object of declared fields.
    Object {
        /// The type's name, for messages.
        name: Box<str>,
        /// The fields, sorted by the name they are stored under.
        fields: Vec<Field>,
    },
}

/// A declared field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name in the object.
    pub name: Box<str>,
    /// Its name in expressions (`__namespace__`, `a__dash__b`).
    pub written: Box<str>,
    /// What it holds.
    pub decl: Decl,
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListKind {
    /// In order, one value.
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

    /// Anything.
    pub fn dynamic() -> Decl {
        Decl::scalar(Type::Dyn)
    }

    /// One value of a type.
    pub fn scalar(ty: Type) -> Decl {
        Decl::new(Shape::Scalar(ty))
    }

    /// A list of `items`.
    pub fn list(items: Decl, kind: ListKind) -> Decl {
        Decl::new(Shape::List { items, kind })
    }

    /// A map from strings to `values`.
    pub fn map(values: Decl) -> Decl {
        Decl::new(Shape::Map { values })
    }

    /// An object; `fields` are (stored name, name in expressions, declaration).
    pub fn object(name: &str, mut fields: Vec<Field>) -> Decl {
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        Decl::new(Shape::Object {
            name: name.into(),
            fields,
        })
    }

    /// The same with bounds. `max_elements`: bytes of a string, items of a list, entries of a map;
    /// `None` when the schema does not bound it. `min_bytes`: the smallest JSON text of such a
    /// value.
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

    /// What it is made of.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// Most bytes of the string, items of the list, entries of the map.
    pub fn max_elements(&self) -> Option<u64> {
        self.0.max_elements
    }

    /// Bytes of the smallest JSON text of such a value.
    pub fn min_bytes(&self) -> u64 {
        self.0.min_bytes
    }

    /// The type.
    pub fn ty(&self) -> Type {
        match &self.0.shape {
            Shape::Scalar(ty) => ty.clone(),
            Shape::List { items, .. } => Type::list(items.ty()),
            Shape::Map { values } => Type::map(Type::String, values.ty()),
            Shape::Object { .. } => Type::Object(self.clone()),
        }
    }

    /// The name of an object's type.
    pub fn name(&self) -> &str {
        match &self.0.shape {
            Shape::Object { name, .. } => name,
            _ => "object",
        }
    }

    /// A declared field, by its name in the object.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let Shape::Object { fields, .. } = &self.0.shape else {
            return None;
        };
        let found = fields.binary_search_by(|f| (*f.name).cmp(name)).ok()?;
        fields.get(found)
    }

    /// A declared field, by its name in expressions.
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
    /// The same declaration, or one of the same name (two compilations of one schema).
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
