//! The operations of a resource, as OpenAPI v3 paths.
//!
//! kubectl reads from them which kind a path serves (`explain`), and whether the server validates
//! fields itself: it looks for the `fieldValidation` parameter on the PATCH of a kind.

use super::{DELETE_OPTIONS, PATCH, SCALE, STATUS, component, reference};
use crate::{negotiate::Patches, third_party};
use insula_api::{Json, Verb};
use insula_catalog::{ApiVersion, ScopeKind, Served, Subresource};
use serde_json::{Map, json};

type Parameter = (&'static str, &'static str, &'static str);

const DRY_RUN: Parameter = (
    "dryRun",
    "string",
    "With the value All nothing is changed; the answer is as if it were.",
);
const FIELD_MANAGER: Parameter = (
    "fieldManager",
    "string",
    "Who makes the change: at most 128 printable characters.",
);
const FIELD_VALIDATION: Parameter = (
    "fieldValidation",
    "string",
    "What happens with unknown and duplicate fields. Ignore: they are dropped. Warn, the default: the answer has a warning \
     for each. Strict: the request is refused.",
);
const FORCE: Parameter = ("force", "boolean", "An apply takes over fields that others manage.");
const PRETTY: Parameter = (
    "pretty",
    "string",
    "With true the answer is indented. The default depends on the client.",
);
const READ: &[Parameter] = &[("resourceVersion", "string", "The answer is no older than this.")];
const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const CHANGE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];
const DELETE: &[Parameter] = &[
    DRY_RUN,
    (
        "gracePeriodSeconds",
        "integer",
        "Seconds to wait before the object goes.",
    ),
    ("orphanDependents", "boolean", "Old form of propagationPolicy."),
    (
        "propagationPolicy",
        "string",
        "What becomes of dependents: Orphan, Background or Foreground.",
    ),
];
const LIST: &[Parameter] = &[
    ("allowWatchBookmarks", "boolean", "A watch may send bookmarks."),
    ("continue", "string", "The token of the page before."),
    ("fieldSelector", "string", "Selects by fields."),
    ("labelSelector", "string", "Selects by labels."),
    ("limit", "integer", "Objects in a page."),
    ("resourceVersion", "string", "The point in time that is asked for."),
    (
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant: Exact or NotOlderThan.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "A watch begins with the objects that there are.",
    ),
    ("timeoutSeconds", "integer", "Seconds after which a watch ends."),
    ("watch", "boolean", "Changes are sent as they happen."),
];

/// A verb on a path.
struct Operation<'a> {
    /// HTTP method in lower case.
    method: &'static str,
    /// Prefix of the operation id.
    word: &'static str,
    /// Part of the operation id before the kind.
    infix: &'static str,
    /// `x-kubernetes-action`.
    action: &'static str,
    /// Beginning of the description; the kind follows.
    text: &'a str,
    parameters: &'static [Parameter],
    /// The component of the body, and true for a required one.
    request: Option<(&'a str, bool)>,
    /// Codes of success, and the component of the answer.
    codes: &'static [&'static str],
    response: &'a str,
    /// Media types of the answer.
    produces: &'static [&'static str],
}

/// Media types of objects.
const OBJECTS: &[&str] = &["application/json", "application/yaml"];
/// Media types of the answers of programs.
const OBJECTS_AND_TEXT: &[&str] = &["application/json", "application/yaml", "text/plain"];

/// Adds the paths of a resource.
pub(super) fn add(paths: &mut Map<String, Json>, served: &Served, version: &ApiVersion) {
    let names = served.names();
    let namespaced = served.api.scope == ScopeKind::Namespaced;
    let root = match served.group().is_empty() {
        true => format!("/api/{}", version.name),
        false => format!("/{}", third_party::root(served.group(), &version.name)),
    };
    let collection = match namespaced {
        true => format!("{root}/namespaces/{{namespace}}/{}", names.plural),
        false => format!("{root}/{}", names.plural),
    };
    let object = component(served.group(), &version.name, &names.kind);
    let list = component(served.group(), &version.name, &names.list_kind);
    let writer = Writer {
        served,
        version,
        namespaced,
    };
    paths.insert(
        collection.clone(),
        writer.path(false, "", &collection_operations(served, &object, &list)),
    );
    let one = format!("{collection}/{{name}}");
    paths.insert(one.clone(), writer.path(true, "", &object_operations(&object)));
    if version.status {
        paths.insert(
            format!("{one}/status"),
            writer.path(true, "Status", &subresource_operations(&object, "status")),
        );
    }
    if version.scale.is_some() {
        paths.insert(
            format!("{one}/scale"),
            writer.path(true, "Scale", &subresource_operations(SCALE, "scale")),
        );
    }
    if namespaced {
        paths.insert(format!("{root}/{}", names.plural), writer.everywhere(&list));
    }
    if served.api.subresource("finalize").is_some() {
        let mut finalize = subresource_operations(&object, "finalize");
        finalize.retain(|operation| operation.method == "put");
        paths.insert(format!("{one}/finalize"), writer.path(true, "Finalize", &finalize));
    }
    for (subresource, types) in served.api.typed_subresources() {
        let named = |kind: &str| component(served.group(), &version.name, kind);
        let (request, response) = (named(&types.request.0), named(&types.response.0));
        let operations = program_operations(subresource, &request, &response);
        let suffix: String = subresource.name.split('-').map(capital).collect();
        let mut path = writer.path(true, &suffix, &operations);
        if let Some((group, version, kind)) = subresource.body {
            let own = json!({"group": group, "version": version, "kind": kind});
            for operation in &operations {
                path[operation.method]["x-kubernetes-group-version-kind"] = own.clone();
            }
        }
        paths.insert(format!("{one}/{}", subresource.name), path);
    }
}

/// Returns the operations of a subresource that a program answers.
fn program_operations<'a>(subresource: &Subresource, request: &'a str, response: &'a str) -> Vec<Operation<'a>> {
    let operation = |verb: &Verb| {
        let (method, word, text) = match *verb {
            Verb::Get => ("get", "read", "read a subresource of the specified"),
            Verb::Update => ("put", "replace", "replace a subresource of the specified"),
            Verb::Delete => ("delete", "delete", "delete a subresource of the specified"),
            _ => ("post", "create", "call a subresource of the specified"),
        };
        let is_write = matches!(method, "post" | "put");
        Operation {
            method,
            word,
            infix: "",
            action: if method == "get" { "connect" } else { method },
            text,
            parameters: if method == "get" { &[] } else { &[DRY_RUN] },
            request: is_write.then_some((request, false)),
            codes: if method == "post" {
                &["200", "201", "202"]
            } else {
                &["200", "202"]
            },
            response,
            produces: OBJECTS_AND_TEXT,
        }
    };
    subresource.verbs.iter().map(operation).collect()
}

fn collection_operations<'a>(served: &Served, object: &'a str, list: &'a str) -> Vec<Operation<'a>> {
    let mut operations = vec![
        Operation {
            method: "get",
            word: "list",
            infix: "",
            action: "list",
            text: "list objects of kind",
            parameters: LIST,
            request: None,
            codes: &["200"],
            response: list,
            produces: OBJECTS,
        },
        Operation {
            method: "post",
            word: "create",
            infix: "",
            action: "post",
            text: "create a",
            parameters: WRITE,
            request: Some((object, true)),
            codes: &["200", "201", "202"],
            response: object,
            produces: OBJECTS,
        },
    ];
    if served.api.strategy.traits().deletes_collection {
        operations.push(Operation {
            method: "delete",
            word: "delete",
            infix: "Collection",
            action: "deletecollection",
            text: "delete collection of",
            parameters: LIST,
            request: None,
            codes: &["200"],
            response: STATUS,
            produces: OBJECTS,
        });
    }
    operations
}

fn object_operations(object: &str) -> Vec<Operation<'_>> {
    vec![
        Operation {
            method: "get",
            word: "read",
            infix: "",
            action: "get",
            text: "read the specified",
            parameters: READ,
            request: None,
            codes: &["200"],
            response: object,
            produces: OBJECTS,
        },
        Operation {
            method: "put",
            word: "replace",
            infix: "",
            action: "put",
            text: "replace the specified",
            parameters: WRITE,
            request: Some((object, true)),
            codes: &["200", "201"],
            response: object,
            produces: OBJECTS,
        },
        Operation {
            method: "patch",
            word: "patch",
            infix: "",
            action: "patch",
            text: "partially update the specified",
            parameters: CHANGE,
            request: Some((PATCH, true)),
            codes: &["200"],
            response: object,
            produces: OBJECTS,
        },
        Operation {
            method: "delete",
            word: "delete",
            infix: "",
            action: "delete",
            text: "delete a",
            parameters: DELETE,
            request: Some((DELETE_OPTIONS, false)),
            codes: &["200", "202"],
            response: STATUS,
            produces: OBJECTS,
        },
    ]
}

fn subresource_operations<'a>(body: &'a str, name: &str) -> Vec<Operation<'a>> {
    let mut operations = object_operations(body);
    operations.retain(|operation| operation.method != "delete");
    for operation in &mut operations {
        operation.text = match (name, operation.method) {
            ("status", "get") => "read status of the specified",
            ("status", "put") => "replace status of the specified",
            ("status", _) => "partially update status of the specified",
            ("scale", "get") => "read scale of the specified",
            ("scale", "put") => "replace scale of the specified",
            ("scale", _) => "partially update scale of the specified",
            _ => "replace finalizers of the specified",
        };
    }
    operations
}

struct Writer<'a> {
    served: &'a Served,
    version: &'a ApiVersion,
    namespaced: bool,
}

impl Writer<'_> {
    fn path(&self, named: bool, suffix: &str, operations: &[Operation<'_>]) -> Json {
        let kind = &self.served.names().kind;
        let mut parameters = Vec::new();
        if named {
            parameters.push(in_path("name", &format!("name of the {kind}")));
        }
        if self.namespaced {
            parameters.push(in_path("namespace", "the namespace"));
        }
        parameters.push(in_query(&PRETTY));
        let mut path = json!({"parameters": parameters});
        let scope = if self.namespaced { "Namespaced" } else { "" };
        for operation in operations {
            let id = format!("{}{}{scope}{kind}{suffix}", self.id(operation.word), operation.infix);
            path[operation.method] = self.operation(operation, &id);
        }
        path
    }

    /// The list across all namespaces.
    fn everywhere(&self, list: &str) -> Json {
        let kind = &self.served.names().kind;
        let mut parameters: Vec<Json> = LIST.iter().map(in_query).collect();
        let after = parameters
            .iter()
            .position(|p| p["name"].as_str() > Some(PRETTY.0))
            .unwrap_or(parameters.len());
        parameters.insert(after, in_query(&PRETTY));
        let operation = Operation {
            method: "get",
            word: "list",
            infix: "",
            action: "list",
            text: "list objects of kind",
            parameters: &[],
            request: None,
            codes: &["200"],
            response: list,
            produces: OBJECTS,
        };
        let id = format!("{}{kind}ForAllNamespaces", self.id("list"));
        json!({"parameters": parameters, "get": self.operation(&operation, &id)})
    }

    fn operation(&self, operation: &Operation<'_>, id: &str) -> Json {
        let kind = &self.served.names().kind;
        let responses = operation.codes.iter().map(|code| {
            let text = match *code {
                "201" => "Created",
                "202" => "Accepted",
                _ => "OK",
            };
            let content = content(operation.response, operation.produces);
            ((*code).to_owned(), json!({"description": text, "content": content}))
        });
        let mut responses: Map<String, Json> = responses.collect();
        responses.insert("401".into(), json!({"description": "Unauthorized"}));
        let (group, version) = (camel(self.served.group()), capital(&self.version.name));
        let tag_group = if group.is_empty() {
            "core".to_owned()
        } else {
            uncapital(&group)
        };
        let mut body = json!({
            "description": format!("{} {kind}", operation.text),
            "operationId": id,
            "tags": [format!("{tag_group}_{}", uncapital(&version))],
            "responses": responses,
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind":
                {"group": &**self.served.group(), "version": &*self.version.name, "kind": &**kind},
        });
        if !operation.parameters.is_empty() {
            body["parameters"] = operation.parameters.iter().map(in_query).collect();
        }
        if let Some((component, required)) = operation.request {
            let patches = Patches::for_api(self.served);
            let types: Vec<&str> = match component == PATCH {
                true => patches.types().iter().map(|patch| patch.media_type()).collect(),
                false => OBJECTS.to_vec(),
            };
            body["requestBody"] = json!({"content": content(component, &types)});
            if required {
                body["requestBody"]["required"] = json!(true);
            }
        }
        body
    }

    /// Returns the beginning of an operation id: `listGoldenExampleComV1`.
    fn id(&self, word: &str) -> String {
        let group = camel(self.served.group());
        let group = if group.is_empty() { "Core".to_owned() } else { group };
        format!("{word}{group}{}", capital(&self.version.name))
    }
}

fn content(component: &str, types: &[&str]) -> Json {
    let schema = json!({"schema": reference(component)});
    Json::Object(
        types
            .iter()
            .map(|media| ((*media).to_owned(), schema.clone()))
            .collect(),
    )
}

fn in_query((name, kind, text): &Parameter) -> Json {
    json!({"name": name, "in": "query", "description": text, "schema": {"type": kind, "uniqueItems": true}})
}

fn in_path(name: &str, text: &str) -> Json {
    let schema = json!({"type": "string", "uniqueItems": true});
    json!({"name": name, "in": "path", "description": text, "required": true, "schema": schema})
}

/// Returns a group in camel case: `golden.example.com` is `GoldenExampleCom`; `.k8s.io` is left
/// out.
pub(super) fn camel(group: &str) -> String {
    let short = group.strip_suffix(".k8s.io").unwrap_or(group);
    short.split(['.', '-']).map(capital).collect()
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(chars)
        .collect()
}

pub(super) fn uncapital(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_ascii_lowercase())
        .into_iter()
        .chain(chars)
        .collect()
}
