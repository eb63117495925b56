//! The reference of the admin API, `docs/api/grpc.md`, made from the descriptors.

use std::{env, fs, path::Path};

use prost_types::{FieldDescriptorProto, FileDescriptorProto, MethodDescriptorProto, field_descriptor_proto::Label};

use crate::{
    OURS, files,
    visit::{Element, Node, elements},
};

const HEAD: &str = "# gRPC reference

This page lists every service, RPC, message and field of the admin API with its comment in
`proto/insula/admin/v1`. The server answers reflection, so `grpcurl` needs no files.
`cargo xtask proto` writes this page.
";

/// Columns of a line of text.
const WIDTH: usize = 100;

fn page(files: &[FileDescriptorProto]) -> String {
    let mut ours: Vec<_> = files.iter().filter(|file| file.package().starts_with(OURS)).collect();
    ours.sort_by_key(|file| file.name());
    let mut out = HEAD.to_owned();
    out += &contents(&ours);
    for file in &ours {
        let own = elements(file);
        for element in own.iter().filter(|element| matches!(element.node, Node::Service)) {
            out += &section(2, element, element.comment);
            let rpcs = own.iter().filter(|part| is_part(part, element));
            for (part, rpc) in rpcs.filter_map(|part| match part.node {
                Node::Rpc(rpc) => Some((part, rpc)),
                _ => None,
            }) {
                out += &section(3, part, &format!("{}\n\n{}", part.comment, signature(rpc)));
            }
        }
    }
    out += "\n## Messages and enumerations\n";
    for file in &ours {
        let own = elements(file);
        for element in &own {
            match element.node {
                Node::Message(_) => out += &(section(3, element, element.comment) + &fields(element, &own)),
                Node::Enum(_) => out += &(section(3, element, element.comment) + &values(element, &own)),
                _ => {}
            }
        }
    }
    out
}

/// Returns the table of all services with links to their RPCs.
fn contents(files: &[&FileDescriptorProto]) -> String {
    let mut out = "\n| service | RPCs |\n|---|---|\n".to_owned();
    for service in files.iter().flat_map(|file| &file.service) {
        let link = |rpc: &MethodDescriptorProto| {
            let heading = format!("{}.{}", service.name(), rpc.name());
            format!("[{}](#{})", rpc.name(), anchor(&heading))
        };
        let rpcs: Vec<String> = service.method.iter().map(link).collect();
        let name = service.name();
        out += &format!("| [{name}](#{}) | {} |\n", anchor(name), rpcs.join(", "));
    }
    out
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace('.', "")
}

/// Returns true if the element is a direct part of the other.
fn is_part(part: &Element<'_>, owner: &Element<'_>) -> bool {
    part.name
        .rsplit_once('.')
        .is_some_and(|(before, _)| before == owner.name)
}

fn section(depth: usize, element: &Element<'_>, text: &str) -> String {
    format!("\n{} {}\n\n{}", "#".repeat(depth), element.name, wrap(text))
}

/// Lays text out in lines of at most [`WIDTH`] columns, and keeps its paragraphs and lists.
fn wrap(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for line in text.lines().map(str::trim) {
        let breaks = line.is_empty() || line.starts_with("- ");
        if breaks && width > 0 {
            out.push('\n');
            width = 0;
        }
        if line.is_empty() && !out.ends_with("\n\n") {
            out.push('\n');
        }
        for word in line.split_whitespace() {
            let word = escape(word);
            if width > 0 && width + 1 + word.len() > WIDTH {
                out.push('\n');
                width = 0;
            }
            if width > 0 {
                out.push(' ');
                width += 1;
            }
            out += &word;
            width += word.len();
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Returns the text as Markdown shows it.
fn escape(text: &str) -> String {
    let is_link = text.contains("](");
    if is_link {
        text.to_owned()
    } else {
        text.replace('<', "\\<").replace('|', "\\|").replace('*', "\\*")
    }
}

fn signature(rpc: &MethodDescriptorProto) -> String {
    let side = |message: &str, streams: bool| format!("{}{}", if streams { "stream of " } else { "" }, link(message));
    format!(
        "Request: {}. Response: {}.",
        side(rpc.input_type(), rpc.client_streaming()),
        side(rpc.output_type(), rpc.server_streaming())
    )
}

/// Returns a link to one of our types, and the name of any other.
fn link(type_name: &str) -> String {
    let full = type_name.trim_start_matches('.');
    match full.strip_prefix("insula.admin.v1.") {
        Some(own) => format!("[{own}](#{})", anchor(own)),
        None => full.to_owned(),
    }
}

fn fields(message: &Element<'_>, all: &[Element<'_>]) -> String {
    let Node::Message(descriptor) = message.node else {
        return String::new();
    };
    let mut out = String::new();
    for part in all.iter().filter(|part| is_part(part, message)) {
        if let Node::Field(field) = part.node {
            if out.is_empty() {
                out += "\n| field | number | type | meaning |\n|---|---|---|---|\n";
            }
            let entry = descriptor.nested_type.iter().find(|nested| {
                let is_map = nested.options.as_ref().is_some_and(|options| options.map_entry());
                is_map
                    && field
                        .type_name()
                        .ends_with(&format!(".{}.{}", descriptor.name(), nested.name()))
            });
            let spelled = match entry {
                Some(entry) => {
                    let of_entry: Vec<String> = entry.field.iter().map(plain_type).collect();
                    format!("map of {}", of_entry.join(" to "))
                }
                None if field.label() == Label::Repeated => format!("repeated {}", plain_type(field)),
                None => plain_type(field),
            };
            let oneof = field
                .oneof_index
                .filter(|_| !field.proto3_optional())
                .and_then(|index| descriptor.oneof_decl.get(usize::try_from(index).ok()?))
                .map(|oneof| format!(" One of `{}`.", oneof.name()));
            let (name, number) = (field.name(), field.number());
            let meaning = cell(part.comment) + &oneof.unwrap_or_default();
            out += &format!("| `{name}` | {number} | {spelled} | {meaning} |\n");
        }
    }
    out
}

fn plain_type(field: &FieldDescriptorProto) -> String {
    match field.type_name() {
        "" => format!("{:?}", field.r#type()).to_lowercase(),
        named => link(named),
    }
}

fn values(choice: &Element<'_>, all: &[Element<'_>]) -> String {
    let mut out = "\n| value | number | meaning |\n|---|---|---|\n".to_owned();
    for part in all.iter().filter(|part| is_part(part, choice)) {
        if let Node::Value(value) = part.node {
            out += &format!("| `{}` | {} | {} |\n", value.name(), value.number(), cell(part.comment));
        }
    }
    out
}

/// Returns a comment as one line of a table.
fn cell(comment: &str) -> String {
    let words: Vec<String> = comment.split_whitespace().map(escape).collect();
    words.join(" ")
}

#[test]
fn the_reference_is_of_now() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api/grpc.md");
    let page = page(&files());
    if env::var_os("UPDATE_EXPECT").is_some() {
        return fs::write(&path, page).expect("docs/api/grpc.md can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == written, "docs/api/grpc.md is stale: run `cargo xtask proto`");
}

#[test]
fn each_link_has_its_heading() {
    let page = page(&files());
    let headings: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")))
        .map(anchor)
        .collect();
    let targets = page.split("](#").skip(1).filter_map(|rest| rest.split(')').next());
    let missing: Vec<&str> = targets
        .filter(|target| !headings.iter().any(|heading| heading == target))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
