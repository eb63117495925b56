//! Compilation of `openAPIV3Schema` documents to trees.
//!
//! `parse` is for admission: it returns all errors, with Kubernetes' messages. `parse_trusted` is
//! for schemas admitted earlier: it only lowers. Both check limits on size and depth first.

use crate::keyword::{flag, strings, text};
use crate::node::{Below, Junctors, Limits, ListType, MapType, Node, Type};
use crate::regexp::Patterns;
use crate::rules::{Trust, compile};
use crate::structural::Structural;
use crate::value_path::{Keys, ValuePath, join};
use insula_api::{FieldError, FieldPath, Json};

/// Depth of a schema. Deeper ones are refused: walks recurse, and a stack is finite.
pub const SCHEMA_DEPTH_MAX: usize = 100;
/// Nodes of a schema. The largest known real one has about 12,000.
pub const SCHEMA_NODES_MAX: usize = 100_000;
/// Bytes of a schema's JSON. etcd and Kubernetes would refuse a larger object.
pub const SCHEMA_BYTES_MAX: usize = 3 * 1024 * 1024;

impl Structural {
    /// Parses and checks a schema. `path` is its field in the definition, for example
    /// `spec.versions[0].schema.openAPIV3Schema`.
    ///
    /// # Errors
    ///
    /// Returns every violation, with Kubernetes' paths and messages.
    pub fn parse(schema: &Json, path: &FieldPath) -> Result<Structural, Vec<FieldError>> {
        Structural::parse_checked(schema, path, crate::admit::check)
    }

    /// Parses and checks a schema that need not be structural: one of a definition in v1beta1 that
    /// preserves unknown fields.
    ///
    /// # Errors
    ///
    /// As [`Structural::parse`], without the errors about structure.
    pub fn parse_any(schema: &Json, path: &FieldPath) -> Result<Structural, Vec<FieldError>> {
        Structural::parse_checked(schema, path, crate::admit::check_keywords)
    }

    fn parse_checked(
        schema: &Json,
        path: &FieldPath,
        check: fn(&Json, &FieldPath) -> Vec<FieldError>,
    ) -> Result<Structural, Vec<FieldError>> {
        within_limits(schema, path).map_err(|e| vec![e])?;
        let errors = check(schema, path);
        let mut wording = crate::admit::check_rules(schema, path);
        if !errors.is_empty() {
            wording.extend(errors);
            return Err(wording);
        }
        let (mut root, mut errors) = lowered(schema, path);
        if errors.is_empty() {
            let of_rules = compile(&mut root, schema, path, &wording, Trust::New);
            // Errors of defaults are reported alone.
            errors = crate::admit::check_defaults(&root, path);
            if errors.is_empty() {
                errors = of_rules;
            }
        }
        errors.extend(wording);
        if errors.is_empty() {
            Ok(Structural::from_root(root))
        } else {
            Err(errors)
        }
    }

    /// Compiles a schema that was admitted earlier or is our own, with only the checks that
    /// evaluation needs. A rule that no longer compiles refuses every value of its node.
    ///
    /// # Errors
    ///
    /// Fails for a pattern that does not compile, an unknown type, or an exceeded limit.
    pub fn parse_trusted(schema: &Json) -> Result<Structural, Vec<FieldError>> {
        let path = FieldPath::new("openAPIV3Schema");
        within_limits(schema, &path).map_err(|e| vec![e])?;
        let (mut root, errors) = lowered(schema, &path);
        if !errors.is_empty() {
            return Err(errors);
        }
        compile(&mut root, schema, &path, &[], Trust::Stored);
        Ok(Structural::from_root(root))
    }
}

/// Refuses a schema that is too deep, too wide or too long to walk, and names the limit.
pub(crate) fn within_limits(schema: &Json, path: &FieldPath) -> Result<(), FieldError> {
    let mut nodes = 0usize;
    let mut bytes = 0usize;
    // An explicit stack: this check makes recursion safe.
    let mut stack = vec![(schema, 0usize)];
    while let Some((value, depth)) = stack.pop() {
        nodes += 1;
        // Each schema level is at most two JSON levels deep: `properties` and a name.
        if depth > SCHEMA_DEPTH_MAX * 2 {
            return Err(FieldError::forbidden(
                path,
                format!("schemas may be nested at most {SCHEMA_DEPTH_MAX} deep"),
            ));
        }
        match value {
            Json::Object(map) => {
                bytes += 2;
                for (key, child) in map {
                    bytes += key.len() + 4;
                    stack.push((child, depth + 1));
                }
            }
            Json::Array(list) => {
                bytes += 2 + list.len();
                stack.extend(list.iter().map(|child| (child, depth + 1)));
            }
            Json::String(text) => bytes += text.len() + 2,
            _ => bytes += 4,
        }
        if nodes > SCHEMA_NODES_MAX * 4 {
            return Err(FieldError::forbidden(
                path,
                format!("schemas may have at most {SCHEMA_NODES_MAX} nodes"),
            ));
        }
        if bytes > SCHEMA_BYTES_MAX {
            return Err(FieldError::forbidden(
                path,
                format!("schemas may be at most {SCHEMA_BYTES_MAX} bytes long"),
            ));
        }
    }
    Ok(())
}

/// Returns the full path of a node; computed only for errors.
fn place(base: &FieldPath, at: &ValuePath<'_>) -> FieldPath {
    join(base, &at.path(Keys::Bracketed))
}

/// State of the compilation of one schema.
struct Lowering {
    errors: Vec<FieldError>,
    patterns: Patterns,
}

fn lowered(schema: &Json, base: &FieldPath) -> (Node, Vec<FieldError>) {
    let mut lowering = Lowering {
        errors: Vec::new(),
        patterns: Patterns::new(),
    };
    let root = lower(schema, &ValuePath::ROOT, base, &mut lowering);
    (root, lowering.errors)
}

fn lower(schema: &Json, at: &ValuePath<'_>, base: &FieldPath, lowering: &mut Lowering) -> Node {
    let mut node = Node {
        kind: kind(schema, at, base, lowering),
        nullable: flag(schema, "nullable"),
        int_or_string: flag(schema, "x-kubernetes-int-or-string"),
        preserves_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
        embedded: flag(schema, "x-kubernetes-embedded-resource"),
        below: Below::default(),
        description: text(schema, "description").into(),
        default: schema.get("default").filter(|d| !d.is_null()).cloned(),
        properties: Vec::new(),
        items: None,
        additional: None,
        list_type: list_type(schema),
        map_type: if text(schema, "x-kubernetes-map-type") == "atomic" {
            MapType::Atomic
        } else {
            MapType::Granular
        },
        required: strings(schema, "required"),
        limits: limits(schema, at, base, lowering),
        junctors: junctors(schema, at, base, lowering),
        rules: Vec::new(),
    };
    if let Some(Json::Object(properties)) = schema.get("properties") {
        let at = at.field("properties");
        // The map is sorted by name: no `preserve_order`.
        node.properties = properties
            .iter()
            .map(|(n, s)| (n.as_str().into(), lower(s, &at.key(n), base, lowering)))
            .collect();
    }
    if node.embedded {
        let metadata = node.properties.iter_mut().find(|(name, _)| &**name == "metadata");
        if let Some((_, metadata)) = metadata {
            crate::embedded::drop_unknown_defaults(metadata);
        }
    }
    if let Some(items @ Json::Object(_)) = schema.get("items") {
        node.items = Some(Box::new(lower(items, &at.field("items"), base, lowering)));
    }
    node.additional = match schema.get("additionalProperties") {
        Some(values @ Json::Object(_)) => Some(Box::new(lower(
            values,
            &at.field("additionalProperties"),
            base,
            lowering,
        ))),
        // Values of an open map have no schema, so fields of objects among them are unknown.
        Some(Json::Bool(true)) => Some(Box::default()),
        _ => None,
    };
    node.below = below(schema, &node);
    node
}

fn kind(schema: &Json, at: &ValuePath<'_>, base: &FieldPath, lowering: &mut Lowering) -> Option<Type> {
    let name = text(schema, "type");
    let kind = Type::parse(name);
    if kind.is_none() && !name.is_empty() {
        let types = ["array", "boolean", "integer", "number", "object", "string"];
        lowering.errors.push(FieldError::not_supported(
            &place(base, &at.field("type")),
            &Json::from(name),
            &types,
        ));
    }
    kind
}

fn list_type(schema: &Json) -> ListType {
    match text(schema, "x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => ListType::Map {
            keys: strings(schema, "x-kubernetes-list-map-keys"),
        },
        _ => ListType::Atomic,
    }
}

fn limits(schema: &Json, at: &ValuePath<'_>, base: &FieldPath, lowering: &mut Lowering) -> Option<Box<Limits>> {
    const NAMES: [&str; 14] = [
        "format",
        "pattern",
        "enum",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "exclusiveMinimum",
        "exclusiveMaximum",
    ];
    let map = schema.as_object()?;
    if !NAMES.iter().any(|name| map.contains_key(*name)) {
        return None;
    }
    let number = |name: &str| map.get(name).and_then(Json::as_f64);
    let count = |name: &str| {
        map.get(name)
            .and_then(Json::as_f64)
            .map(|n| if n < 0.0 { 0 } else { n as usize })
    };
    let mut limits = Limits {
        format: map
            .get("format")
            .and_then(Json::as_str)
            .filter(|f| !f.is_empty())
            .map(Into::into),
        check: crate::formats::lookup(text(schema, "format")),
        pattern: None,
        choices: map.get("enum").and_then(Json::as_array).cloned().unwrap_or_default(),
        minimum: number("minimum"),
        maximum: number("maximum"),
        exclusive_minimum: flag(schema, "exclusiveMinimum"),
        exclusive_maximum: flag(schema, "exclusiveMaximum"),
        multiple_of: number("multipleOf").filter(|n| *n > 0.0),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
    };
    let pattern = text(schema, "pattern");
    if !pattern.is_empty() {
        match lowering.patterns.compile(pattern) {
            Ok(pattern) => limits.pattern = Some(pattern),
            Err(why) => lowering.errors.push(FieldError::invalid(
                &place(base, &at.field("pattern")),
                &Json::from(pattern),
                format!("must be a valid regular expression, but isn't: {why}"),
            )),
        }
    }
    Some(Box::new(limits))
}

fn junctors(schema: &Json, at: &ValuePath<'_>, base: &FieldPath, lowering: &mut Lowering) -> Option<Box<Junctors>> {
    let mut list = |name: &str| -> Vec<Node> {
        let at = at.field(name);
        let schemas = schema
            .get(name)
            .and_then(Json::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        schemas
            .iter()
            .enumerate()
            .map(|(i, s)| lower(s, &at.index(i), base, lowering))
            .collect()
    };
    let mut junctors = Junctors {
        all_of: list("allOf"),
        any_of: list("anyOf"),
        one_of: list("oneOf"),
        not: None,
    };
    if let Some(not @ Json::Object(_)) = schema.get("not") {
        junctors.not = Some(lower(not, &at.field("not"), base, lowering));
    }
    let Junctors {
        all_of,
        any_of,
        one_of,
        not,
    } = &junctors;
    let empty = all_of.is_empty() && any_of.is_empty() && one_of.is_empty() && not.is_none();
    (!empty).then(|| Box::new(junctors))
}

fn below(schema: &Json, node: &Node) -> Below {
    let rules = schema.get("x-kubernetes-validations").and_then(Json::as_array);
    let mut below = Below {
        defaults: node.default.is_some(),
        rules: rules.is_some_and(|rules| !rules.is_empty()),
        lists: node.list_type != ListType::Atomic,
        embedded: node.embedded,
    };
    let children = node
        .properties
        .iter()
        .map(|(_, n)| n)
        .chain(node.items())
        .chain(node.additional());
    for child in children {
        below.defaults |= child.below.defaults;
        below.rules |= child.below.rules;
        below.lists |= child.below.lists;
        below.embedded |= child.below.embedded;
    }
    below
}
