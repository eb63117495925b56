//! Conventions of the admin API, checked over the descriptors that reflection serves.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto};

fn files() -> Vec<FileDescriptorProto> {
    let set = FileDescriptorSet::decode(insula_proto::FILE_DESCRIPTOR_SET).expect("a descriptor set");
    set.file
        .into_iter()
        .filter(|file| file.package() == "insula.admin.v1")
        .collect()
}

fn messages() -> Vec<DescriptorProto> {
    files().into_iter().flat_map(|file| file.message_type).collect()
}

fn services() -> Vec<ServiceDescriptorProto> {
    files().into_iter().flat_map(|file| file.service).collect()
}

/// Methods of a release stay. A method joins the list with its first release.
#[test]
fn released_methods_are_served() {
    let methods = services().into_iter().flat_map(|service| {
        let name = service.name().to_owned();
        service.method.into_iter().map(move |method| {
            let stream = if method.server_streaming() { " (stream)" } else { "" };
            format!("{name}.{}{stream}", method.name())
        })
    });
    let released = [
        "ClusterService.GetInfo",
        "ConversionService.Convert",
        "ConversionService.Validate",
        "WorkspaceService.GetWorkspace",
        "WorkspaceService.ListWorkspaces",
        "WorkspaceService.TreeWorkspaces (stream)",
    ];
    let methods: BTreeSet<String> = methods.collect();
    let missing: Vec<&str> = released
        .into_iter()
        .filter(|method| !methods.contains(*method))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {methods:?}");
}

#[test]
fn every_reply_begins_with_a_header() {
    let messages = messages();
    for method in services().iter().flat_map(|service| &service.method) {
        let reply = messages
            .iter()
            .find(|message| method.output_type().ends_with(&format!(".{}", message.name())));
        let first = reply.and_then(|reply| reply.field.iter().find(|field| field.number() == 1));
        let is_header = first.is_some_and(|field| field.type_name() == ".insula.admin.v1.ResponseHeader");
        assert!(is_header, "the reply of {} has no header as field 1", method.name());
    }
}
