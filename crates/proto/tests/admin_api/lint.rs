//! buf's STANDARD and COMMENTS lint rules, by their names. `PACKAGE_NO_IMPORT_CYCLE` cannot be
//! broken by one package, and `PROTOVALIDATE` has nothing to check.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use prost_types::{EnumDescriptorProto, FileDescriptorProto, MethodDescriptorProto};

use crate::{
    OURS, compile, files,
    names::{is_lower_snake, is_pascal, is_upper_snake, upper_snake},
    visit::{Element, Node, elements},
};

/// Returns one line for each finding: file, rule, element and fix.
fn lint(files: &[FileDescriptorProto]) -> Vec<String> {
    let ours = || files.iter().filter(|file| file.package().starts_with(OURS));
    let mut found = Vec::new();
    for file in ours() {
        let mut report = |rule: &str, element: &str, fix: &str| {
            found.push(format!("{}: {rule}: {element}: {fix}", file.name()));
        };
        file_rules(file, &mut report);
        imports(file, files, &mut report);
        for element in elements(file) {
            spelling(&element, &mut report);
            if element.comment.trim().is_empty() {
                let rule = format!("COMMENT_{}", kind(element.node));
                report(&rule, &element.name, "write a comment above it");
            }
        }
    }
    found.extend(rpc_types(ours()));
    found
}

fn kind(node: Node<'_>) -> &'static str {
    match node {
        Node::Message(_) => "MESSAGE",
        Node::Field(_) => "FIELD",
        Node::Oneof => "ONEOF",
        Node::Enum(_) => "ENUM",
        Node::Value(_) => "ENUM_VALUE",
        Node::Service => "SERVICE",
        Node::Rpc(_) => "RPC",
    }
}

fn file_rules(file: &FileDescriptorProto, report: &mut impl FnMut(&str, &str, &str)) {
    let package = file.package();
    let path = Path::new(file.name());
    let folder = path.parent().unwrap_or(Path::new("")).to_string_lossy();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if folder.replace('/', ".") != package {
        report(
            "PACKAGE_DIRECTORY_MATCH",
            package,
            "put the file in the folder of its package",
        );
    }
    if !package.split('.').all(is_lower_snake) {
        report("PACKAGE_LOWER_SNAKE_CASE", package, "write the package in lower case");
    }
    let version = package.rsplit('.').next().unwrap_or_default();
    let digits = version.strip_prefix('v').unwrap_or_default();
    if !digits.starts_with(|c: char| ('1'..='9').contains(&c)) {
        report(
            "PACKAGE_VERSION_SUFFIX",
            package,
            "end the package with a version, such as v1",
        );
    }
    if !is_lower_snake(&stem) {
        report(
            "FILE_LOWER_SNAKE_CASE",
            &stem,
            "write the file's name in lower_snake_case",
        );
    }
    if file.syntax() != "proto3" {
        report("SYNTAX_SPECIFIED", file.name(), "write syntax = \"proto3\"");
    }
    if !file.public_dependency.is_empty() {
        report("IMPORT_NO_PUBLIC", file.name(), "import it without public");
    }
    if !file.weak_dependency.is_empty() {
        report("IMPORT_NO_WEAK", file.name(), "import it without weak");
    }
}

/// Checks that each import defines a type that the file names.
fn imports(file: &FileDescriptorProto, all: &[FileDescriptorProto], report: &mut impl FnMut(&str, &str, &str)) {
    let elements_of_file = elements(file);
    let used: BTreeSet<&str> = elements_of_file
        .iter()
        .flat_map(|element| match element.node {
            Node::Field(field) => vec![field.type_name()],
            Node::Rpc(rpc) => vec![rpc.input_type(), rpc.output_type()],
            // The value of a map is a field of its entry, which is no element.
            Node::Message(message) => {
                let entries = message.nested_type.iter().flat_map(|entry| &entry.field);
                entries.map(|field| field.type_name()).collect()
            }
            _ => Vec::new(),
        })
        .chain(file.extension.iter().map(|extension| extension.extendee()))
        .collect();
    // Descriptors without their extensions do not tell which option a method has.
    let has_options = |element: &Element<'_>| matches!(element.node, Node::Rpc(rpc) if rpc.options.is_some());
    let uses_options = elements_of_file.iter().any(has_options);
    for import in &file.dependency {
        let imported = all.iter().find(|file| file.name() == import);
        if uses_options && imported.is_some_and(|imported| !imported.extension.is_empty()) {
            continue;
        }
        let defines_used = imported.is_some_and(|imported| {
            elements(imported).iter().any(|element| {
                let is_type = matches!(element.node, Node::Message(_) | Node::Enum(_));
                is_type && used.contains(format!(".{}.{}", imported.package(), element.name).as_str())
            })
        });
        if !defines_used {
            report("IMPORT_USED", import, "remove the import");
        }
    }
}

fn spelling(element: &Element<'_>, report: &mut impl FnMut(&str, &str, &str)) {
    let own = element.name.rsplit('.').next().unwrap_or_default();
    let mut check = |holds: bool, rule: &str, fix: &str| {
        if !holds {
            report(rule, &element.name, fix);
        }
    };
    match element.node {
        Node::Message(_) => check(is_pascal(own), "MESSAGE_PASCAL_CASE", "write it in PascalCase"),
        Node::Field(_) => check(
            is_lower_snake(own),
            "FIELD_LOWER_SNAKE_CASE",
            "write it in lower_snake_case",
        ),
        Node::Oneof => check(
            is_lower_snake(own),
            "ONEOF_LOWER_SNAKE_CASE",
            "write it in lower_snake_case",
        ),
        Node::Value(_) => check(
            is_upper_snake(own),
            "ENUM_VALUE_UPPER_SNAKE_CASE",
            "write it in UPPER_SNAKE_CASE",
        ),
        Node::Rpc(_) => check(is_pascal(own), "RPC_PASCAL_CASE", "write it in PascalCase"),
        Node::Service => {
            check(is_pascal(own), "SERVICE_PASCAL_CASE", "write it in PascalCase");
            check(own.ends_with("Service"), "SERVICE_SUFFIX", "end its name with Service");
        }
        Node::Enum(choice) => {
            check(is_pascal(own), "ENUM_PASCAL_CASE", "write it in PascalCase");
            values(choice, &mut check);
        }
    }
}

fn values(choice: &EnumDescriptorProto, check: &mut impl FnMut(bool, &str, &str)) {
    let prefix = format!("{}_", upper_snake(choice.name()));
    let prefixed = choice.value.iter().all(|value| value.name().starts_with(&prefix));
    let fix = format!("begin each value with {prefix}");
    check(prefixed, "ENUM_VALUE_PREFIX", &fix);
    let first = choice.value.first();
    check(
        first.is_some_and(|value| value.number() == 0),
        "ENUM_FIRST_VALUE_ZERO",
        "begin with the value 0",
    );
    let zero = choice.value.iter().find(|value| value.number() == 0);
    let fix = format!("name the value 0 {prefix}UNSPECIFIED");
    check(
        zero.is_none_or(|value| value.name().ends_with("_UNSPECIFIED")),
        "ENUM_ZERO_VALUE_SUFFIX",
        &fix,
    );
    let aliases = choice.options.as_ref().is_some_and(|options| options.allow_alias());
    check(!aliases, "ENUM_NO_ALLOW_ALIAS", "give each value a number of its own");
}

/// Checks that each RPC has a request and a response that are named for it and that it alone uses.
fn rpc_types<'a>(files: impl Iterator<Item = &'a FileDescriptorProto>) -> Vec<String> {
    let mut found = Vec::new();
    let mut users: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files {
        for service in &file.service {
            for rpc in &service.method {
                let element = format!("{}.{}", service.name(), rpc.name());
                found.extend(standard_names(file, service.name(), rpc));
                users.entry(rpc.input_type()).or_default().push(element.clone());
                users.entry(rpc.output_type()).or_default().push(element);
            }
        }
    }
    let shared = users.into_iter().filter(|(_, rpcs)| rpcs.len() > 1);
    found.extend(shared.map(|(message, rpcs)| {
        let rpcs = rpcs.join(" and ");
        format!("RPC_REQUEST_RESPONSE_UNIQUE: {rpcs} use {message}: give each a message of its own")
    }));
    found
}

fn standard_names(file: &FileDescriptorProto, service: &str, rpc: &MethodDescriptorProto) -> Vec<String> {
    let sides = [
        ("RPC_REQUEST_STANDARD_NAME", "Request", rpc.input_type()),
        ("RPC_RESPONSE_STANDARD_NAME", "Response", rpc.output_type()),
    ];
    let wrong = sides.into_iter().filter_map(|(rule, suffix, message)| {
        let own = message.rsplit('.').next().unwrap_or_default();
        let want = format!("{}{suffix}", rpc.name());
        let fits = own == want || own == format!("{service}{want}");
        (!fits).then(|| {
            let rpc = rpc.name();
            format!(
                "{}: {rule}: {service}.{rpc}: name its message {want}, not {own}",
                file.name()
            )
        })
    });
    wrong.collect()
}

#[test]
fn the_admin_api_follows_the_rules() {
    let found = lint(&files());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_rule_finds_its_example() {
    // The expected rules are those that buf 1.75 reports for the same file.
    let examples = [
        ("import \"google/protobuf/struct.proto\";", &["IMPORT_USED"][..]),
        ("message A {}", &["COMMENT_MESSAGE"]),
        (
            "// A.\nmessage a { oneof B { int32 X = 1; } }",
            &[
                "COMMENT_FIELD",
                "COMMENT_ONEOF",
                "FIELD_LOWER_SNAKE_CASE",
                "MESSAGE_PASCAL_CASE",
                "ONEOF_LOWER_SNAKE_CASE",
            ],
        ),
        (
            "enum e { FOO = 0; }",
            &[
                "COMMENT_ENUM",
                "COMMENT_ENUM_VALUE",
                "ENUM_PASCAL_CASE",
                "ENUM_VALUE_PREFIX",
                "ENUM_ZERO_VALUE_SUFFIX",
            ],
        ),
        (
            "// E.\nenum E { option allow_alias = true;\n// Z.\nE_UNSPECIFIED = 0;\n// A.\nE_a = 1;\n// B.\nE_B = 1; }",
            &["ENUM_NO_ALLOW_ALIAS", "ENUM_VALUE_UPPER_SNAKE_CASE"],
        ),
        (
            "// M.\nmessage M {}\nservice s { rpc get(M) returns (M); }",
            &[
                "COMMENT_RPC",
                "COMMENT_SERVICE",
                "RPC_PASCAL_CASE",
                "RPC_REQUEST_RESPONSE_UNIQUE",
                "RPC_REQUEST_STANDARD_NAME",
                "RPC_RESPONSE_STANDARD_NAME",
                "SERVICE_PASCAL_CASE",
                "SERVICE_SUFFIX",
            ],
        ),
        (
            "import \"google/protobuf/struct.proto\";
            // M.
            message M {
            // F.
            map<string, google.protobuf.Value> f = 1; }",
            &[],
        ),
    ];
    for (source, want) in examples {
        let found = lint(&compile(source));
        let rules: BTreeSet<&str> = found
            .iter()
            .flat_map(|line| line.split(": "))
            .filter(|word| word.contains('_') && is_upper_snake(word))
            .collect();
        assert_eq!(
            rules.into_iter().collect::<Vec<_>>(),
            want,
            "{source}\n{}",
            found.join("\n")
        );
    }
}
