//! The kinds of `apis.kcp.io`, each with the name of kcp's first releases.

use crate::{
    Builtin, Strategy,
    kind::{OtherName, conversions, crd},
    object::add_finalizer,
};
use insula_api::{Json, Timestamp};

pub(super) const KINDS: &[Builtin] = &[
    Builtin {
        other_names: &[first_name("apiresourceschemas", "APIResourceSchema")],
        ..Builtin::new(crd!("apis.kcp.io_apiresourceschemas"))
    },
    Builtin {
        other_names: &[first_name("apiconversionrules", "APIConversionRules")],
        ..Builtin::new(crd!("apis.kcp.io_apiconversions"))
    },
    Builtin {
        conversions: Some(conversions!("apis.kcp.io_apiexports")),
        other_names: &[first_name("apiexports", "APIExport")],
        ..Builtin::new(crd!("apis.kcp.io_apiexports"))
    },
    Builtin {
        conversions: Some(conversions!("apis.kcp.io_apibindings")),
        other_names: &[first_name("apibindings", "APIBinding")],
        strategy: &ApiBindings,
        ..Builtin::new(crd!("apis.kcp.io_apibindings"))
    },
    Builtin::new(crd!("apis.kcp.io_apiexportendpointslices")),
];

/// Returns a name in the group of kcp's first releases, which the seed's manifests use.
const fn first_name(plural: &'static str, kind: &'static str) -> OtherName {
    OtherName::Renamed {
        group: "apis.kcp.dev",
        version: "v1alpha1",
        plural,
        kind,
    }
}

/// Finalizer that keeps a binding until its objects are deleted.
const BINDING_FINALIZER: &str = "apis.kcp.io/apibinding-finalizer";

/// APIBindings.
struct ApiBindings;

impl Strategy for ApiBindings {
    fn prepare_for_create(&self, new: &mut Json, _now: Timestamp) {
        add_finalizer(new, BINDING_FINALIZER);
    }
}
