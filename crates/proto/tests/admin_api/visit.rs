//! A walk over the elements of a file with their comments.

use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    MethodDescriptorProto,
};

/// An element of a file.
#[derive(Clone, Copy)]
pub(crate) enum Node<'a> {
    Message(&'a DescriptorProto),
    Field(&'a FieldDescriptorProto),
    Oneof,
    Enum(&'a EnumDescriptorProto),
    Value(&'a EnumValueDescriptorProto),
    Service,
    Rpc(&'a MethodDescriptorProto),
}

/// An element with its place.
pub(crate) struct Element<'a> {
    pub(crate) node: Node<'a>,
    /// Name within the package: `Workspace.path`.
    pub(crate) name: String,
    /// Comment above it, without the slashes; empty if there is none.
    pub(crate) comment: &'a str,
}

/// Returns the elements in the order of services, messages and enums, each before its parts.
/// Entries of maps and oneofs of single optional fields, which no file spells, are left out.
pub(crate) fn elements(file: &FileDescriptorProto) -> Vec<Element<'_>> {
    let mut walk = Walk {
        file,
        found: Vec::new(),
    };
    // Numbers of descriptor.proto: 6 services, 4 messages, 5 enums of a file.
    for (service, index) in file.service.iter().zip(0..) {
        walk.add(Node::Service, service.name(), &[6, index]);
        for (rpc, part) in service.method.iter().zip(0..) {
            walk.add(
                Node::Rpc(rpc),
                &format!("{}.{}", service.name(), rpc.name()),
                &[6, index, 2, part],
            );
        }
    }
    for (message, index) in file.message_type.iter().zip(0..) {
        walk.message(message, "", &[4, index]);
    }
    for (choice, index) in file.enum_type.iter().zip(0..) {
        walk.choice(choice, "", &[5, index]);
    }
    walk.found
}

struct Walk<'a> {
    file: &'a FileDescriptorProto,
    found: Vec<Element<'a>>,
}

impl<'a> Walk<'a> {
    fn add(&mut self, node: Node<'a>, name: &str, path: &[i32]) {
        let locations = self.file.source_code_info.iter().flat_map(|info| &info.location);
        let comment = locations
            .filter(|location| location.path == path)
            .find_map(|location| location.leading_comments.as_deref());
        self.found.push(Element {
            node,
            name: name.to_owned(),
            comment: comment.unwrap_or_default(),
        });
    }

    /// Numbers of descriptor.proto: 2 fields, 3 messages, 4 enums, 8 oneofs of a message.
    fn message(&mut self, message: &'a DescriptorProto, parent: &str, path: &[i32]) {
        if message.options.as_ref().is_some_and(|options| options.map_entry()) {
            return;
        }
        let name = format!("{parent}{}", message.name());
        let part = |kind: i32, index: i32| [path, &[kind, index]].concat();
        self.add(Node::Message(message), &name, path);
        for (field, index) in message.field.iter().zip(0..) {
            self.add(Node::Field(field), &format!("{name}.{}", field.name()), &part(2, index));
        }
        for (oneof, index) in message.oneof_decl.iter().zip(0..) {
            let is_spelled = message
                .field
                .iter()
                .any(|field| field.oneof_index == Some(index) && !field.proto3_optional());
            if is_spelled {
                self.add(Node::Oneof, &format!("{name}.{}", oneof.name()), &part(8, index));
            }
        }
        let parent = format!("{name}.");
        for (nested, index) in message.nested_type.iter().zip(0..) {
            self.message(nested, &parent, &part(3, index));
        }
        for (choice, index) in message.enum_type.iter().zip(0..) {
            self.choice(choice, &parent, &part(4, index));
        }
    }

    fn choice(&mut self, choice: &'a EnumDescriptorProto, parent: &str, path: &[i32]) {
        let name = format!("{parent}{}", choice.name());
        self.add(Node::Enum(choice), &name, path);
        for (value, index) in choice.value.iter().zip(0..) {
            let path = [path, &[2, index]].concat();
            self.add(Node::Value(value), &format!("{name}.{}", value.name()), &path);
        }
    }
}
