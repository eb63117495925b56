//! The methods of the admin API, as their descriptors and options describe them.

use prost_reflect::{MethodDescriptor, Value};

use crate::json::pool;

/// Option of a method: the verb of Kubernetes' requests that it stands for.
const VERB: &str = "insula.admin.v1.verb";
/// Option of a method that changes nothing (`google.protobuf.MethodOptions`), and its value.
const IDEMPOTENCY: &str = "idempotency_level";
const NO_SIDE_EFFECTS: i32 = 1;

/// A method of the admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodInfo {
    /// Its path: `/insula.admin.v1.ApiService/GetExport`.
    pub path: String,
    /// The verb of Kubernetes' requests that it stands for: `get`; `None` if there is none.
    pub verb: Option<String>,
    /// True for a method that says that it changes nothing.
    pub reads: bool,
    /// The fields of its request, by name.
    pub fields: Vec<String>,
}

impl MethodInfo {
    /// Returns the short name: `ApiService/GetExport`.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('.').map_or(&self.path, |(_, name)| name)
    }

    fn describe(method: &MethodDescriptor) -> MethodInfo {
        let options = method.options();
        let verb = pool().get_extension_by_name(VERB);
        let verb = verb.filter(|verb| options.has_extension(verb));
        let level = options.get_field_by_name(IDEMPOTENCY);
        MethodInfo {
            path: format!("/{}/{}", method.parent_service().full_name(), method.name()),
            verb: verb.and_then(|verb| options.get_extension(&verb).as_str().map(str::to_owned)),
            fields: method.input().fields().map(|field| field.name().to_owned()).collect(),
            reads: level.is_some_and(|level| *level == Value::EnumNumber(NO_SIDE_EFFECTS)),
        }
    }
}

/// Returns the methods of all services of the admin API.
pub fn methods() -> Vec<MethodInfo> {
    let services = pool()
        .services()
        .filter(|service| service.parent_file().package_name() == "insula.admin.v1");
    let methods = services.flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.map(|method| MethodInfo::describe(&method)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients make a write idempotent by a `request_id`; who changes nothing needs none.
    #[test]
    fn a_method_that_reads_takes_no_request_id() {
        for service in pool().services() {
            for method in service.methods() {
                let info = MethodInfo::describe(&method);
                if !info.path.starts_with("/insula.") {
                    continue;
                }
                let takes_id = method.input().get_field_by_name("request_id").is_some();
                assert_eq!(info.reads, !takes_id, "{}", info.path);
            }
        }
    }

    #[test]
    fn the_options_are_read() {
        let methods = methods();
        let of_name = |name: &str| methods.iter().find(|method| method.name() == name).expect(name);
        let apply = of_name("ObjectService/ApplyObject");
        assert_eq!((apply.verb.as_deref(), apply.reads), (Some("patch"), false));
        let watch = of_name("ObjectService/WatchObjects");
        assert_eq!((watch.verb.as_deref(), watch.reads), (Some("watch"), true));
        assert_eq!(of_name("ApiService/PublishApi").verb, None);
    }
}
