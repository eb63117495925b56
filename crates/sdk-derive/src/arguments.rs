//! Parsing of `#[resource(…)]`.

use syn::{
    DeriveInput, Error, Ident, LitBool, LitInt, LitStr, Path, Result, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    spanned::Spanned,
    token,
};

/// The arguments of a resource, as they are written.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) group: Option<LitStr>,
    pub(crate) version: Option<LitStr>,
    pub(crate) kind: Option<LitStr>,
    pub(crate) plural: Option<LitStr>,
    pub(crate) scope: Option<LitStr>,
    pub(crate) short: Vec<LitStr>,
    pub(crate) categories: Vec<LitStr>,
    pub(crate) selectable: Vec<LitStr>,
    pub(crate) columns: Vec<Column>,
    /// Paths of `/scale`: replicas wanted, replicas there, selector.
    pub(crate) scale: Option<(LitStr, LitStr, Option<LitStr>)>,
    /// Names of subresources, each with the type that answers.
    pub(crate) subresources: Vec<(String, Path)>,
    pub(crate) strategy: Option<Path>,
    /// Types of other versions, each with the strategy of its defaults.
    pub(crate) versions: Vec<(Path, Option<Path>)>,
    pub(crate) deprecated: Option<LitStr>,
    pub(crate) unserved: bool,
}

/// A printer column.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) path: LitStr,
    pub(crate) kind: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) priority: i32,
}

/// One argument: `"text"`, `name`, `name = value`, or `name(arguments)`.
enum Item {
    Text(LitStr),
    Named { name: Ident, value: Value },
}

enum Value {
    None,
    Text(LitStr),
    Number(LitInt),
    Bool(LitBool),
    Path(Path),
    /// A path with arguments: `v1alpha1::Robot(strategy = Defaults)`.
    PathWith(Path, Vec<Item>),
    List(Vec<Item>),
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(LitStr) {
            return Ok(Item::Text(input.parse()?));
        }
        let path: Path = input.parse()?;
        let Some(name) = path.get_ident().cloned() else {
            let value = match input.peek(token::Paren) {
                true => Value::PathWith(path.clone(), list(input)?),
                false => Value::Path(path.clone()),
            };
            let name = path.segments.last().map(|segment| segment.ident.clone());
            let name = name.ok_or_else(|| Error::new(path.span(), "expected a name"))?;
            return Ok(Item::Named { name, value });
        };
        let value = if input.peek(token::Paren) {
            Value::List(list(input)?)
        } else if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            value(input)?
        } else {
            Value::None
        };
        Ok(Item::Named { name, value })
    }
}

fn list(input: ParseStream<'_>) -> Result<Vec<Item>> {
    let content;
    syn::parenthesized!(content in input);
    items(&content)
}

fn value(input: ParseStream<'_>) -> Result<Value> {
    let look = input.lookahead1();
    if look.peek(LitStr) {
        input.parse().map(Value::Text)
    } else if look.peek(LitInt) {
        input.parse().map(Value::Number)
    } else if look.peek(LitBool) {
        input.parse().map(Value::Bool)
    } else {
        input.parse().map(Value::Path)
    }
}

fn items(input: ParseStream<'_>) -> Result<Vec<Item>> {
    Ok(Punctuated::<Item, Token![,]>::parse_terminated(input)?
        .into_iter()
        .collect())
}

/// Reads all `#[resource(…)]` of a type.
pub(crate) fn parse(input: &DeriveInput) -> Result<Arguments> {
    let mut arguments = Arguments::default();
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("resource")) {
        for item in attribute.parse_args_with(items)? {
            let Item::Named { name, value } = item else {
                return Err(Error::new(attribute.span(), "expected `name = value`"));
            };
            arguments.take(&name, value)?;
        }
    }
    Ok(arguments)
}

impl Arguments {
    fn take(&mut self, name: &Ident, value: Value) -> Result<()> {
        match (name.to_string().as_str(), value) {
            ("group", Value::Text(text)) => self.group = Some(text),
            ("version", Value::Text(text)) => self.version = Some(text),
            ("kind", Value::Text(text)) => self.kind = Some(text),
            ("plural", Value::Text(text)) => self.plural = Some(text),
            ("scope", Value::Text(text)) => self.scope = Some(text),
            ("deprecated", Value::Text(text)) => self.deprecated = Some(text),
            ("short", Value::Text(text)) => self.short.push(text),
            ("short", Value::List(items)) => self.short = texts(items, name)?,
            ("category", Value::Text(text)) => self.categories.push(text),
            ("category", Value::List(items)) => self.categories = texts(items, name)?,
            ("selectable", Value::Text(text)) => self.selectable.push(text),
            ("selectable", Value::List(items)) => self.selectable = texts(items, name)?,
            ("strategy", Value::Path(path)) => self.strategy = Some(path),
            ("versions", Value::List(items)) => {
                self.versions = items.into_iter().map(version).collect::<Result<_>>()?
            }
            ("subresources", Value::List(items)) => self.subresources(items)?,
            ("columns", Value::List(items)) => self.columns = items.into_iter().map(column).collect::<Result<_>>()?,
            ("unserved", Value::None) => self.unserved = true,
            ("unserved", Value::Bool(value)) => self.unserved = value.value,
            (known, _) if KNOWN.contains(&known) => {
                let why = format!("`{known}` is not written so; see the documentation of insula_sdk::Resource");
                return Err(Error::new(name.span(), why));
            }
            (unknown, _) => {
                let why = format!("unknown argument `{unknown}`; known are {}", KNOWN.join(", "));
                return Err(Error::new(name.span(), why));
            }
        }
        Ok(())
    }

    fn subresources(&mut self, items: Vec<Item>) -> Result<()> {
        for item in items {
            match item {
                Item::Named {
                    name,
                    value: Value::Path(path),
                } if name != "status" && name != "scale" => {
                    self.subresources.push((name.to_string(), path));
                }
                // A type with a status has the subresource.
                Item::Named {
                    name,
                    value: Value::None,
                } if name == "status" => {}
                Item::Named {
                    name,
                    value: Value::List(items),
                } if name == "scale" => {
                    self.scale = Some(scale(&name, items)?);
                }
                Item::Named { name, .. } => {
                    let why = "expected `status`, `scale(spec = \".spec.…\", status = \".status.…\")` or `name = Type`";
                    return Err(Error::new(name.span(), why));
                }
                Item::Text(text) => return Err(Error::new(text.span(), "expected a name without quotes")),
            }
        }
        Ok(())
    }
}

const KNOWN: [&str; 14] = [
    "group",
    "version",
    "kind",
    "plural",
    "short",
    "category",
    "scope",
    "subresources",
    "columns",
    "selectable",
    "strategy",
    "versions",
    "deprecated",
    "unserved",
];

fn texts(items: Vec<Item>, at: &Ident) -> Result<Vec<LitStr>> {
    let text = |item| match item {
        Item::Text(text) => Ok(text),
        Item::Named { .. } => Err(Error::new(at.span(), "expected texts in quotes")),
    };
    items.into_iter().map(text).collect()
}

fn version(item: Item) -> Result<(Path, Option<Path>)> {
    let (path, arguments) = match item {
        Item::Named {
            value: Value::Path(path),
            ..
        } => (path, Vec::new()),
        Item::Named {
            value: Value::PathWith(path, arguments),
            ..
        } => (path, arguments),
        Item::Named {
            name,
            value: Value::None,
        } => (name.into(), Vec::new()),
        Item::Named {
            name,
            value: Value::List(arguments),
        } => (name.into(), arguments),
        Item::Named { name, .. } => return Err(Error::new(name.span(), "expected a type")),
        Item::Text(text) => return Err(Error::new(text.span(), "expected a type without quotes")),
    };
    let mut strategy = None;
    for argument in arguments {
        match argument {
            Item::Named {
                name,
                value: Value::Path(path),
            } if name == "strategy" => strategy = Some(path),
            _ => return Err(Error::new(path.span(), "a version takes `strategy = Type`")),
        }
    }
    Ok((path, strategy))
}

fn scale(at: &Ident, items: Vec<Item>) -> Result<(LitStr, LitStr, Option<LitStr>)> {
    let (mut spec, mut status, mut selector) = (None, None, None);
    for item in items {
        match item {
            Item::Named {
                name,
                value: Value::Text(text),
            } if name == "spec" => spec = Some(text),
            Item::Named {
                name,
                value: Value::Text(text),
            } if name == "status" => status = Some(text),
            Item::Named {
                name,
                value: Value::Text(text),
            } if name == "selector" => selector = Some(text),
            _ => {
                return Err(Error::new(
                    at.span(),
                    "scale takes `spec`, `status` and `selector`, each a path",
                ));
            }
        }
    }
    match (spec, status) {
        (Some(spec), Some(status)) => Ok((spec, status, selector)),
        _ => Err(Error::new(
            at.span(),
            "scale needs `spec` and `status`: the paths of the replicas",
        )),
    }
}

fn column(item: Item) -> Result<Column> {
    let (name, value) = match item {
        Item::Named { name, value } => (name, value),
        Item::Text(text) => return Err(Error::new(text.span(), "expected `Name = \".path\"`")),
    };
    let mut column = Column {
        name: name.to_string(),
        path: LitStr::new("", name.span()),
        kind: None,
        description: None,
        priority: 0,
    };
    match value {
        Value::Text(path) => column.path = path,
        Value::List(items) => {
            for item in items {
                match item {
                    Item::Named {
                        name,
                        value: Value::Text(text),
                    } if name == "path" => column.path = text,
                    Item::Named {
                        name,
                        value: Value::Text(text),
                    } if name == "type_" => column.kind = Some(text),
                    Item::Named {
                        name,
                        value: Value::Text(text),
                    } if name == "kind" => column.kind = Some(text),
                    Item::Named {
                        name,
                        value: Value::Text(text),
                    } if name == "name" => column.name = text.value(),
                    Item::Named {
                        name,
                        value: Value::Text(text),
                    } if name == "description" => {
                        column.description = Some(text);
                    }
                    Item::Named {
                        name,
                        value: Value::Number(number),
                    } if name == "priority" => {
                        column.priority = number.base10_parse()?;
                    }
                    _ => {
                        let why = "a column takes `path`, `kind`, `name`, `description` and `priority`";
                        return Err(Error::new(name.span(), why));
                    }
                }
            }
        }
        _ => {
            return Err(Error::new(
                name.span(),
                "expected `Name = \".path\"` or `Name(path = \".path\")`",
            ));
        }
    }
    if !column.path.value().starts_with('.') {
        return Err(Error::new(
            name.span(),
            "the path of a column begins with a dot, as `.spec.size`",
        ));
    }
    Ok(column)
}
