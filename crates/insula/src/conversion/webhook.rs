//! `insula conversion webhook`.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{anyhow, bail};
use insula_api::FieldPath;
use insula_conversion::{Portable, VersionSchema};
use insula_server::{Answer, Answering, ServingEvent};

use crate::{
    apis::{Input, Source},
    failed,
};

mod review;

use review::{Api, respond};

/// Maximum number of bytes of a request body. One request may hold a list of objects.
const BODY_BYTES_MAX: usize = 256 << 20;

/// Answers ConversionReviews (apiextensions.k8s.io/v1) on every path, and GET /healthz. Stores
/// fields that a version cannot show in the annotation insula.io/residual of the object;
/// docs/tools.md lists the limits.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes:
  0  stopped by SIGTERM or SIGINT
  1  rules or schema are refused
  2  a file cannot be read, a flag is wrong, or the address is taken
  5  the certificate or its key cannot be used")]
pub(crate) struct Arguments {
    #[command(flatten)]
    input: Input,
    #[arg(
        help = "Address to serve on; port 0 takes a free one",
        long,
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:9443"
    )]
    listen: String,
    /// The certificate as PEM, for the name by which the cluster calls. Read again when it changes,
    /// with its key.
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,
    /// Its key as PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut compiled = Vec::new();
    let mut refused = false;
    for source in arguments.input.load()?.sources {
        match portable(&source) {
            Ok(api) => compiled.push(api),
            Err(error) => {
                refused = true;
                eprintln!("error: {}: {error}", source.name());
            }
        }
    }
    if refused {
        return Ok(ExitCode::from(1));
    }
    let kinds: Vec<String> = compiled.iter().map(Api::to_string).collect();
    let answer: Arc<Answer> = Arc::new(move |request| respond(&compiled, &request));
    let settings = Answering {
        listen: arguments.listen.clone(),
        certificate: arguments.tls_cert.clone(),
        key: arguments.tls_key.clone(),
        body_bytes: BODY_BYTES_MAX,
    };
    let report = |event| match event {
        ServingEvent::Ready(address) => {
            for kind in &kinds {
                eprintln!("converts {kind}");
            }
            eprintln!("answering on https://{address}");
        }
        ServingEvent::Renewed => eprintln!("the certificate has changed"),
        ServingEvent::NotRenewed(error) => eprintln!("warning: {error}; the previous certificate stays in use"),
    };
    let served = crate::runtime()?.block_on(insula_server::answer(settings, answer, report));
    Ok(match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.exit_code() == 5 => failed(error, 5),
        Err(error) => bail!(error),
    })
}

fn portable(source: &Source) -> anyhow::Result<Api> {
    let refused = |errors: Vec<insula_api::FieldError>| anyhow!(insula_api::aggregate(&errors));
    let api = source.manifest().compile().map_err(refused)?;
    let rules = source.manifest().rules().map_err(refused)?;
    let version = |version: &insula_catalog::ApiVersion| VersionSchema {
        name: version.name.to_string(),
        served: version.served,
        schema: version.schema.clone(),
    };
    let versions: Vec<VersionSchema> = api.versions.iter().map(version).collect();
    let stored = api.bundle.storage();
    let portable = Portable::compile(&api.group, &versions, stored, rules.as_ref(), &FieldPath::new("spec"));
    Ok(Api {
        group: api.group.to_string(),
        kind: api.names.kind.to_string(),
        versions: versions.into_iter().map(|version| version.name).collect(),
        portable: portable.map_err(refused)?,
    })
}
