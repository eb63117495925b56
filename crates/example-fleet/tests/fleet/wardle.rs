//! The kinds of an upstream extension server (`k8s.io/sample-apiserver`), made with the library:
//! Flunder in two versions and Fischer, for the clients of client-go in `e2e/clients/go`.
//!
//! The test binary is the program as well, so that it is linked once.

use insula_sdk::{FieldError, FieldPath, ObjectMeta, Resource, Server, Strategy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf, process::ExitCode};

const ARGUMENTS: &str = "WARDLE_ARGUMENTS";

/// An object that may refer to another one.
#[derive(Resource, Clone, Debug)]
#[resource(group = "wardle.example.com", version = "v1beta1", strategy = Flunders)]
#[resource(versions(v1alpha1::Flunder(strategy = v1alpha1::Defaults)))]
struct Flunder {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: FlunderSpec,
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
struct FlunderSpec {
    /// A name of another flunder, mutually exclusive to the FischerReference.
    #[serde(skip_serializing_if = "Option::is_none")]
    flunder_reference: Option<String>,
    /// A name of a fischer, mutually exclusive to the FlunderReference.
    #[serde(skip_serializing_if = "Option::is_none")]
    fischer_reference: Option<String>,
    /// The reference type.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_type: Option<String>,
}

/// A list of flunders that are disallowed.
#[derive(Resource, Clone, Debug)]
#[resource(group = "wardle.example.com", version = "v1alpha1", scope = "Cluster")]
struct Fischer {
    metadata: ObjectMeta,
    /// Names of flunders that are disallowed.
    disallowed_flunders: Option<Vec<String>>,
}

/// Upstream's `ValidateFlunderSpec`.
struct Flunders;

impl Strategy<Flunder> for Flunders {
    fn validate(&self, new: &Flunder) -> Vec<FieldError> {
        let FlunderSpec {
            flunder_reference,
            fischer_reference,
            reference_type,
        } = &new.spec;
        let invalid = |field: &str, value: &Option<String>, why: &str| {
            let value = value.clone().unwrap_or_default();
            vec![FieldError::invalid(
                &FieldPath::new("spec").child(field),
                &value.into(),
                why,
            )]
        };
        let is = |kind: &str| reference_type.as_deref() == Some(kind);
        match (flunder_reference, fischer_reference) {
            (Some(_), Some(_)) => {
                let why = "cannot be set with flunderReference at the same time";
                invalid("fischerReference", fischer_reference, why)
            }
            (Some(_), None) if !is("Flunder") => {
                let why = "cannot be set if referenceType is not Flunder";
                invalid("flunderReference", flunder_reference, why)
            }
            (None, Some(_)) if !is("Fischer") => {
                let why = "cannot be set if referenceType is not Fischer";
                invalid("fischerReference", fischer_reference, why)
            }
            (None, None) if is("Flunder") => {
                let why = "cannot be empty if referenceType is Flunder";
                invalid("flunderReference", flunder_reference, why)
            }
            _ => Vec::new(),
        }
    }
}

mod v1alpha1 {
    use insula_sdk::{ObjectMeta, Resource, Strategy};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// An object that may refer to another one.
    #[derive(Resource, Clone, Debug)]
    #[resource(group = "wardle.example.com", version = "v1alpha1")]
    pub(super) struct Flunder {
        metadata: ObjectMeta,
        #[serde(default)]
        spec: FlunderSpec,
    }

    #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct FlunderSpec {
        /// A name of another flunder or fischer, depending on the reference type.
        #[serde(skip_serializing_if = "Option::is_none")]
        reference: Option<String>,
        /// The reference type, defaults to "Flunder" if reference is set.
        #[serde(skip_serializing_if = "Option::is_none")]
        reference_type: Option<String>,
    }

    /// Upstream's `SetDefaults_FlunderSpec`.
    pub(super) struct Defaults;

    impl Strategy<Flunder> for Defaults {
        fn default(&self, new: &mut Flunder) {
            if new.spec.reference.is_some() {
                new.spec.reference_type.get_or_insert("Flunder".into());
            }
        }
    }

    impl From<super::Flunder> for Flunder {
        fn from(hub: super::Flunder) -> Self {
            let super::FlunderSpec {
                flunder_reference,
                fischer_reference,
                reference_type,
            } = hub.spec;
            Self {
                metadata: hub.metadata,
                spec: FlunderSpec {
                    reference: flunder_reference.or(fischer_reference),
                    reference_type,
                },
            }
        }
    }

    impl From<Flunder> for super::Flunder {
        fn from(own: Flunder) -> Self {
            let FlunderSpec {
                reference,
                reference_type,
            } = own.spec;
            let (flunder_reference, fischer_reference) = match reference_type.as_deref() {
                Some("Fischer") => (None, reference),
                _ => (reference, None),
            };
            Self {
                metadata: own.metadata,
                spec: super::FlunderSpec {
                    flunder_reference,
                    fischer_reference,
                    reference_type,
                },
            }
        }
    }
}

#[test]
#[ignore = "the program that another test starts"]
fn serves() {
    let Some(arguments) = env::var_os(ARGUMENTS).and_then(|arguments| arguments.into_string().ok()) else {
        return;
    };
    let arguments = ["wardle"].into_iter().chain(arguments.split(' '));
    let server = Server::builder().resource::<Flunder>().resource::<Fischer>();
    let code = server.program("wardle", "0.1.0").run_from(arguments);
    assert_eq!(code, ExitCode::SUCCESS);
}

/// Writes a program that serves the kinds, with the flags of `insula start`.
pub(crate) fn program(folder: &std::path::Path) -> PathBuf {
    let path = folder.join("wardle");
    let this = env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n{ARGUMENTS}=\"$*\" exec '{}' wardle::serves --exact --ignored --nocapture\n",
        this.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}
