//! OpenAPI v2 in protobuf: gnostic's `openapi.v2.Document`. client-go's `OpenAPISchema()` takes
//! nothing else: `kubectl explain --output plaintext-openapiv2`, kubectl's own validation and Argo
//! CD use it.
//!
//! The tables map names of JSON to gnostic's field numbers. JSON's maps are lists of pairs in
//! gnostic; alternatives of JSON are wrapped in a message each. Values without a schema are YAML
//! texts in block style, as gnostic writes them: there are clients that compare the text.

use crate::protobuf::write::{bytes, double, varint};
use insula_api::Json;
use serde_json::Map;

/// A message: its fields, and the number of the field for names that begin with `x-`; zero for a
/// message without one.
struct Message {
    fields: &'static [Field],
    extensions: u32,
}

struct Field {
    number: u32,
    name: &'static str,
    /// Messages around the value: the value's field number in each.
    within: &'static [u32],
    form: Form,
}

#[derive(Clone, Copy)]
enum Form {
    Text,
    Bool,
    Integer,
    Double,
    /// Any value, as YAML.
    Any,
    Message(&'static Message),
    /// A map: pairs of name (1) and value (2, with the messages around it) at a number.
    Pairs(u32, &'static [u32], &'static Message),
    /// A parameter, whose message depends on its place: body, query or path.
    Parameter,
    /// A schema or a boolean.
    SchemaOrBool,
}

const fn field(number: u32, name: &'static str, form: Form) -> Field {
    within(number, name, &[], form)
}

const fn within(number: u32, name: &'static str, within: &'static [u32], form: Form) -> Field {
    Field {
        number,
        name,
        within,
        form,
    }
}

use Form::{Any, Bool, Double, Integer, Pairs, Parameter, SchemaOrBool, Text};

static DOCUMENT: Message = Message {
    fields: &[
        field(1, "swagger", Text),
        field(2, "info", Form::Message(&INFO)),
        field(8, "paths", Pairs(2, &[], &PATH_ITEM)),
        field(9, "definitions", Pairs(1, &[], &SCHEMA)),
    ],
    extensions: 16,
};
static INFO: Message = Message {
    fields: &[field(1, "title", Text), field(2, "version", Text)],
    extensions: 7,
};
static PATH_ITEM: Message = Message {
    fields: &[
        field(2, "get", Form::Message(&OPERATION)),
        field(3, "put", Form::Message(&OPERATION)),
        field(4, "post", Form::Message(&OPERATION)),
        field(5, "delete", Form::Message(&OPERATION)),
        field(8, "patch", Form::Message(&OPERATION)),
        field(9, "parameters", Parameter),
    ],
    extensions: 10,
};
static OPERATION: Message = Message {
    fields: &[
        field(1, "tags", Text),
        field(3, "description", Text),
        field(5, "operationId", Text),
        field(6, "produces", Text),
        field(7, "consumes", Text),
        field(8, "parameters", Parameter),
        field(9, "responses", Pairs(1, &[1], &RESPONSE)),
    ],
    extensions: 13,
};
static RESPONSE: Message = Message {
    fields: &[
        field(1, "description", Text),
        within(2, "schema", &[1], Form::Message(&SCHEMA)),
    ],
    extensions: 5,
};
static BODY: Message = Message {
    fields: &[
        field(1, "description", Text),
        field(2, "name", Text),
        field(3, "in", Text),
        field(4, "required", Bool),
        field(5, "schema", Form::Message(&SCHEMA)),
    ],
    extensions: 6,
};
static IN_QUERY: Message = Message {
    fields: &[
        field(1, "required", Bool),
        field(2, "in", Text),
        field(3, "description", Text),
        field(4, "name", Text),
        field(6, "type", Text),
        field(7, "format", Text),
    ],
    extensions: 23,
};
static IN_PATH: Message = Message {
    fields: &[
        field(1, "required", Bool),
        field(2, "in", Text),
        field(3, "description", Text),
        field(4, "name", Text),
        field(5, "type", Text),
        field(6, "format", Text),
    ],
    extensions: 22,
};
static SCHEMA: Message = Message {
    fields: &[
        field(1, "$ref", Text),
        field(2, "format", Text),
        field(3, "title", Text),
        field(4, "description", Text),
        field(5, "default", Any),
        field(6, "multipleOf", Double),
        field(7, "maximum", Double),
        field(8, "exclusiveMaximum", Bool),
        field(9, "minimum", Double),
        field(10, "exclusiveMinimum", Bool),
        field(11, "maxLength", Integer),
        field(12, "minLength", Integer),
        field(13, "pattern", Text),
        field(14, "maxItems", Integer),
        field(15, "minItems", Integer),
        field(16, "uniqueItems", Bool),
        field(17, "maxProperties", Integer),
        field(18, "minProperties", Integer),
        field(19, "required", Text),
        field(20, "enum", Any),
        field(21, "additionalProperties", SchemaOrBool),
        within(22, "type", &[1], Text),
        within(23, "items", &[1], Form::Message(&SCHEMA)),
        field(24, "allOf", Form::Message(&SCHEMA)),
        field(25, "properties", Pairs(1, &[], &SCHEMA)),
        field(30, "example", Any),
    ],
    extensions: 31,
};

/// Encodes a v2 document.
pub(super) fn encoded(document: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    message(&DOCUMENT, document, &mut out);
    out
}

fn message(of: &Message, value: &Json, out: &mut Vec<u8>) {
    let Some(map) = value.as_object() else { return };
    for field in of.fields {
        match map.get(field.name) {
            None => {}
            // A value of any type may be a list itself; values of `enum` are encoded one by one.
            Some(Json::Array(list)) if field.name != "default" && field.name != "example" => {
                list.iter().for_each(|item| put(field, item, out));
            }
            Some(value) => put(field, value, out),
        }
    }
    if of.extensions > 0 {
        let extensions = map.iter().filter(|(name, _)| name.starts_with("x-"));
        extensions.for_each(|(name, value)| {
            nested(of.extensions, out, |out| {
                text(1, name, out);
                nested(2, out, |out| any(value, out));
            });
        });
    }
}

fn put(field: &Field, value: &Json, out: &mut Vec<u8>) {
    match field.within.split_first() {
        Some((inner, rest)) => nested(field.number, out, |out| {
            let inner = within(*inner, field.name, rest, field.form);
            put(&inner, value, out);
        }),
        None => write(field.number, field.form, value, out),
    }
}

fn write(number: u32, form: Form, value: &Json, out: &mut Vec<u8>) {
    match form {
        Text => text(number, value.as_str().unwrap_or_default(), out),
        Bool => varint(number, u64::from(value == &Json::Bool(true)), out),
        // Two's complement, as protobuf wants negative numbers.
        Integer => varint(number, value.as_i64().unwrap_or_default() as u64, out),
        Double => double(number, value.as_f64().unwrap_or_default(), out),
        Any => nested(number, out, |out| any(value, out)),
        Form::Message(of) => nested(number, out, |out| message(of, value, out)),
        Pairs(at, around, of) => nested(number, out, |out| pairs(at, around, of, value.as_object(), out)),
        Parameter => {
            let (path, of): (&'static [u32], _) = match value["in"].as_str() {
                Some("body") => (&[1, 1], &BODY),
                Some("path") => (&[1, 2, 4], &IN_PATH),
                _ => (&[1, 2, 3], &IN_QUERY),
            };
            put(&within(number, "", path, Form::Message(of)), value, out);
        }
        SchemaOrBool => nested(number, out, |out| match value {
            Json::Bool(_) => write(2, Bool, value, out),
            _ => write(1, Form::Message(&SCHEMA), value, out),
        }),
    }
}

fn pairs(at: u32, around: &'static [u32], of: &'static Message, map: Option<&Map<String, Json>>, out: &mut Vec<u8>) {
    for (name, value) in map.into_iter().flatten() {
        nested(at, out, |out| {
            text(1, name, out);
            put(&within(2, "", around, Form::Message(of)), value, out);
        });
    }
}

fn any(value: &Json, out: &mut Vec<u8>) {
    // JSON is YAML, too.
    let yaml = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
    text(2, &yaml, out);
}

fn text(number: u32, text: &str, out: &mut Vec<u8>) {
    bytes(number, text.as_bytes(), out);
}

/// Encodes a nested message. It is encoded on its own first, because its length precedes it.
fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(number, &inner, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_printable(text: &str) -> bool {
        text.chars().all(|c| !c.is_control())
    }

    /// Decodes a message as `protoc --decode_raw` does: field numbers with their values.
    fn shown(mut wire: &[u8]) -> Option<String> {
        fn number(wire: &mut &[u8]) -> Option<u64> {
            let (mut number, mut shift) = (0, 0);
            loop {
                let (&byte, rest) = wire.split_first()?;
                *wire = rest;
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 || shift > 63 {
                    return Some(number);
                }
            }
        }
        let mut out = Vec::new();
        while !wire.is_empty() {
            let tag = number(&mut wire)?;
            let value = match tag & 7 {
                0 => number(&mut wire)?.to_string(),
                1 => {
                    let (double, rest) = wire.split_first_chunk::<8>()?;
                    wire = rest;
                    f64::from_le_bytes(*double).to_string()
                }
                2 => {
                    let size = usize::try_from(number(&mut wire)?).ok()?;
                    let (inner, rest) = wire.split_at_checked(size)?;
                    wire = rest;
                    match std::str::from_utf8(inner) {
                        Ok(text) if is_printable(text) => format!("\"{text}\""),
                        // YAML, in lines.
                        Ok(text) if text.ends_with('\n') && text.lines().all(is_printable) => format!("{text:?}"),
                        _ => format!("{{{}}}", shown(inner)?),
                    }
                }
                _ => return None,
            };
            out.push(format!("{}:{value}", tag >> 3));
        }
        Some(out.join(" "))
    }

    #[test]
    fn documents_are_written_as_gnostic_reads_them() {
        let schema = json!({"type": "object", "required": ["a", "b"], "maxProperties": 3, "default": [1],
            "properties": {"a": {"type": "array", "items": {"$ref": "#/definitions/B"}}, "b": {"enum": ["x", 1], "minimum": 0.5}},
            "additionalProperties": false, "x-kubernetes-group-version-kind": [{"kind": "A"}]});
        let operation = json!({"operationId": "patchA", "consumes": ["text/x", "text/y"],
            "parameters": [
                {"name": "body", "in": "body", "required": true, "schema": {"type": "object"}},
                {"name": "dryRun", "in": "query", "type": "string"},
            ],
            "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/A"}}}});
        let path = json!({"patch": operation, "parameters": [{"name": "name", "in": "path", "required": true, "type": "string"}]});
        let document = json!({"swagger": "2.0", "info": {"title": "T", "version": "v"}, "paths": {"/a": path},
            "definitions": {"A": schema}});
        let want = concat!(
            r##"1:"2.0" 2:{1:"T" 2:"v"} "##,
            r##"8:{2:{1:"/a" 2:{8:{5:"patchA" 7:"text/x" 7:"text/y" "##,
            r##"8:{1:{1:{2:"body" 3:"body" 4:1 5:{22:{1:"object"}}}}} 8:{1:{2:{3:{2:"query" 4:"dryRun" 6:"string"}}}} "##,
            r##"9:{1:{1:"200" 2:{1:{1:"OK" 2:{1:{1:"#/definitions/A"}}}}}}} "##,
            r##"9:{1:{2:{4:{1:1 2:"path" 4:"name" 5:"string"}}}}}}} "##,
            r##"9:{1:{1:"A" 2:{5:{2:"- 1\n"} 17:3 19:"a" 19:"b" 21:{2:0} 22:{1:"object"} "##,
            r##"25:{1:{1:"a" 2:{22:{1:"array"} 23:{1:{1:"#/definitions/B"}}}} 1:{1:"b" 2:{9:0.5 20:{2:"x\n"} 20:{2:"1\n"}}}} "##,
            r##"31:{1:"x-kubernetes-group-version-kind" 2:{2:"- kind: A\n"}}}}}"##,
        );
        assert_eq!(shown(&encoded(&document)).as_deref(), Some(want));
    }
}
