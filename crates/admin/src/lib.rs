//! The gRPC admin services, over the registry, the edge and the authorizers of the HTTP API.
//!
//! Health takes no credential; reflection and every other service take one.

mod api_request;
pub mod backups;
mod fields;
pub mod host;
pub mod operations;
mod pages;
mod requests;
mod services;
mod session;
pub mod status;
mod workers;

pub use requests::{Requests, expire_requests};
pub use session::{AdminService, Info, Uploads};
pub use workers::WorkerPool;

use insula_api::Verb;
use insula_apiserver::{ApiServer, call::Access};
use insula_proto::{FILE_DESCRIPTOR_SET, admin::v1, methods::MethodInfo, rpc};
use prost::Message;
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use std::{collections::BTreeMap, sync::Arc};
use tonic::{Request, Status, service::Routes};
use tonic_health::{ServingStatus, server::HealthReporter};

/// Bytes of a message without objects.
const NAMES_BYTES_MAX: usize = 64 << 10;
/// Bytes of a message of an upload: a chunk, and the fields beside it.
const UPLOAD_MESSAGE_BYTES_MAX: usize = (1 << 20) + (64 << 10);
/// Bytes of a message that takes no credential: the name of a service.
const OPEN_BYTES_MAX: usize = 1 << 10;

/// Returns the work of all kinds of operations. `version` is that of the program.
pub fn jobs(
    api: &Arc<ApiServer>,
    workers: &Arc<WorkerPool>,
    host: &Arc<dyn host::Host>,
    version: &str,
) -> Vec<Arc<dyn operations::Job>> {
    backups::jobs(&api.registry, workers, host, version)
}

/// The services, with the parameters of their methods for the edge.
pub struct Services {
    /// The services.
    pub routes: Routes,
    /// Their health.
    pub health: Health,
    /// Every method by its path.
    pub methods: BTreeMap<String, Method>,
}

/// Health of the services: `SERVING` from the start.
pub struct Health(HealthReporter);

impl Health {
    /// Says `NOT_SERVING` of every service from now on, so that clients call another server.
    pub async fn end(&self) {
        for name in SERVICES.iter().chain(&[""]) {
            self.0.set_service_status(*name, ServingStatus::NotServing).await;
        }
    }
}

/// The parameters of a method for the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Access that it takes.
    pub access: Access,
    /// The verb in metrics of the requests that it stands for.
    pub verb: Option<Verb>,
    /// True for a method that may change something.
    pub mutates: bool,
    /// True for a method that answers with a stream.
    pub streams: bool,
    /// True for a method that receives a stream and answers once.
    pub uploads: bool,
    /// Bytes of a call's messages.
    pub bytes: usize,
}

/// Returns all admin services; a message with objects has at most `object_bytes` bytes.
///
/// # Errors
/// The built-in descriptors do not parse.
pub async fn services(session: AdminService, object_bytes: usize) -> Result<Services, tonic_reflection::server::Error> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let descriptors = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(rpc::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Reflection is about no workspace: impersonation takes the right to it outside of workspaces.
    let authorize = |request: Request<()>| -> Result<Request<()>, Status> {
        let caller = session::caller(&request)?;
        caller.user().map_err(status::forbidden)?;
        Ok(request)
    };
    let guard = tonic::service::InterceptorLayer::new(authorize);
    let v1 = descriptors().build_v1()?.max_decoding_message_size(NAMES_BYTES_MAX);
    let v1alpha = descriptors()
        .build_v1alpha()?
        .max_decoding_message_size(NAMES_BYTES_MAX);
    let routes = Routes::new(health.max_decoding_message_size(OPEN_BYTES_MAX))
        .add_service(tower::Layer::layer(&guard, v1))
        .add_service(tower::Layer::layer(&guard, v1alpha));
    for name in SERVICES {
        reporter.set_service_status(*name, ServingStatus::Serving).await;
    }
    let routes = add_services(routes, Arc::new(session), object_bytes);
    Ok(Services {
        routes,
        health: Health(reporter),
        methods: methods(object_bytes)?,
    })
}

macro_rules! admin_services {
    ($($module:ident::$server:ident)*) => {
        /// Full names of the admin services.
        const SERVICES: &[&str] = &[$(v1::$module::SERVICE_NAME),*];

        /// Adds the admin services. Of methods without objects the edge takes smaller messages.
        fn add_services(routes: Routes, session: Arc<AdminService>, object_bytes: usize) -> Routes {
            routes$(.add_service(
                v1::$module::$server::from_arc(session.clone()).max_decoding_message_size(object_bytes),
            ))*
        }
    };
}
admin_services! {
    access_service_server::AccessServiceServer
    api_service_server::ApiServiceServer
    backup_service_server::BackupServiceServer
    cluster_service_server::ClusterServiceServer
    conversion_service_server::ConversionServiceServer
    maintenance_service_server::MaintenanceServiceServer
    migration_service_server::MigrationServiceServer
    object_service_server::ObjectServiceServer
    operation_service_server::OperationServiceServer
    quota_service_server::QuotaServiceServer
    workspace_service_server::WorkspaceServiceServer
}

/// Returns the methods of all descriptors by path.
fn methods(object_bytes: usize) -> Result<BTreeMap<String, Method>, prost::DecodeError> {
    let mut methods = BTreeMap::new();
    let of_admin = insula_proto::methods::methods();
    let of_admin: BTreeMap<&str, &MethodInfo> = of_admin.iter().map(|method| (&*method.path, method)).collect();
    for encoded in [
        FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ] {
        let files = FileDescriptorSet::decode(encoded)?.file;
        let messages: Vec<&DescriptorProto> = files.iter().flat_map(|file| &file.message_type).collect();
        for file in &files {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                for method in &service.method {
                    let path = format!("/{name}/{}", method.name());
                    let streams = method.server_streaming();
                    // Health and reflection change nothing.
                    let info = of_admin.get(&*path);
                    let verb = info.and_then(|info| Verb::named(info.verb.as_deref()?));
                    let known = Method {
                        access: access(&name),
                        verb: verb.or(streams.then_some(Verb::Watch)),
                        mutates: info.is_some_and(|info| !info.reads),
                        streams,
                        uploads: method.client_streaming() && !streams,
                        bytes: match access(&name) {
                            Access::Open => OPEN_BYTES_MAX,
                            Access::Authenticated if method.client_streaming() && !streams => UPLOAD_MESSAGE_BYTES_MAX,
                            Access::Authenticated if has_object(&messages, method.input_type(), 0) => object_bytes,
                            Access::Authenticated => NAMES_BYTES_MAX,
                        },
                    };
                    methods.insert(path, known);
                }
            }
        }
    }
    Ok(methods)
}

fn access(service: &str) -> Access {
    match service {
        "grpc.health.v1.Health" => Access::Open,
        _ => Access::Authenticated,
    }
}

/// Levels of messages within a message that are searched for objects.
const NESTING_MAX: usize = 8;

/// Returns true for a message type with an object: a Struct, in it or in a message of it, or the
/// annotations of one, which are as large.
fn has_object(messages: &[&DescriptorProto], message: &str, depth: usize) -> bool {
    if message == ".google.protobuf.Struct" {
        return true;
    }
    // Names are unique: the admin API is one package, and the others have no objects.
    let name = message.rsplit('.').next().unwrap_or_default();
    let found = messages.iter().find(|message| message.name() == name);
    let fields = found.map(|message| message.field.as_slice()).unwrap_or_default();
    let of_type = |name: &str| !name.is_empty() && has_object(messages, name, depth + 1);
    let has = |field: &FieldDescriptorProto| field.name() == "annotations" || of_type(field.type_name());
    depth < NESTING_MAX && fields.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_is_served() {
        let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
        let name = |file: &prost_types::FileDescriptorProto, name: &str| format!("{}.{name}", file.package());
        let described = files
            .iter()
            .flat_map(|file| file.service.iter().map(|service| name(file, service.name())));
        let mut served: Vec<_> = SERVICES.to_vec();
        served.sort_unstable();
        let mut described: Vec<_> = described.collect();
        described.sort_unstable();
        assert_eq!(served, described);
    }

    #[test]
    fn messages_with_objects_may_be_large() {
        let methods = methods(5 << 20).expect("the descriptors parse");
        for (path, bytes) in [
            ("/grpc.health.v1.Health/Check", OPEN_BYTES_MAX),
            ("/insula.admin.v1.ClusterService/GetInfo", NAMES_BYTES_MAX),
            ("/insula.admin.v1.ObjectService/GetObject", NAMES_BYTES_MAX),
            ("/insula.admin.v1.ObjectService/ApplyObject", 5 << 20),
            ("/insula.admin.v1.WorkspaceService/CreateWorkspace", 5 << 20),
            ("/insula.admin.v1.WorkspaceService/UpdateWorkspace", 5 << 20),
            ("/insula.admin.v1.WorkspaceService/DeleteWorkspace", NAMES_BYTES_MAX),
            ("/insula.admin.v1.ConversionService/Convert", 5 << 20),
            ("/insula.admin.v1.MigrationService/PlanMigration", 5 << 20),
        ] {
            assert_eq!(methods[path].bytes, bytes, "{path}");
        }
        let mutates = |path: &str| methods[path].mutates;
        assert!(mutates("/insula.admin.v1.ObjectService/ApplyObject"));
        assert!(!mutates("/insula.admin.v1.ObjectService/WatchObjects"));
        assert!(!mutates("/grpc.health.v1.Health/Check"));
    }

    #[test]
    fn verbs_of_methods_are_verbs() {
        for method in insula_proto::methods::methods() {
            let verb = method.verb.as_deref().map(Verb::named);
            let agrees = verb.is_none_or(|verb| verb.is_some_and(|verb| verb.reads() == method.reads));
            assert!(agrees, "{}: {:?}", method.path, method.verb);
        }
    }
}
