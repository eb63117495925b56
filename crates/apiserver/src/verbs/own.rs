//! Subresources that the program answers itself: its handler gets the object and the body, and may
//! change the object.

use super::ResourceRequest;
use crate::{
    aggregation::Stream,
    negotiate::Supported,
    reply::{self, Form, Replied, Reply},
    request_stages::Permitted,
};
use axum::body::Body;
use futures_util::TryStreamExt;
use insula_api::Verb;
use insula_catalog::{Error, ObjectChange, Part, SubresourceBody, SubresourceHandler, SubresourceRequest};
use insula_pipeline::Refusal;
use insula_registry::{Change, verbs};

/// Maximum number of answers of a handler for one request: each follows a write by another client.
const ATTEMPTS_MAX: usize = 8;
const TEXT: &str = "text/plain; charset=utf-8";

/// Serves a subresource by its handler.
pub(crate) async fn serve(request: &mut ResourceRequest<'_>, verb: Verb, handler: &dyn SubresourceHandler) -> Replied {
    let body = match verb {
        Verb::Get | Verb::Delete => None,
        _ => request.optional_body().await?,
    };
    let options = request.write_options("UpdateOptions")?;
    let registry = &request.server.registry;
    let mut attempt = 0;
    loop {
        attempt += 1;
        let snapshot = registry.store.latest().charged_to(&request.target.served.meter);
        let entry = verbs::get(registry, &snapshot, &request.target, &request.name)?;
        let object = verbs::show(registry, &request.target, &entry).await?;
        let revision = object["metadata"]["resourceVersion"].clone();
        let asked = SubresourceRequest {
            verb,
            object,
            body: body.clone(),
            query: request.request.parsed.query.pairs().to_vec(),
            cluster: request.target.cluster.clone(),
            user: request.request.authorized.user().clone(),
            now: registry.clock.now(),
            dry_run: options.dry_run,
        };
        let answer = handler.call(asked).await?;
        let (part, mut new) = match answer.change {
            None => return respond(request, answer.code, answer.body, &[]),
            Some(ObjectChange::Object(new)) => (Part::Main, new),
            Some(ObjectChange::Status(new)) => (Part::Status, new),
        };
        new["metadata"]["resourceVersion"] = revision;
        let change = Change::Replace(new);
        match verbs::update(registry, &request.target, &request.name, change, part, &options).await {
            Ok(written) => return respond(request, answer.code, answer.body, &written.warnings),
            Err(Error::Conflict { .. }) if attempt < ATTEMPTS_MAX => {}
            Err(error) => return Err(Refusal::from(error)),
        }
    }
}

fn respond(request: &ResourceRequest<'_>, code: u16, body: SubresourceBody, warnings: &[String]) -> Replied {
    let mut reply = match body {
        SubresourceBody::Text(text) => reply::bytes(code, text.into_bytes(), TEXT).into(),
        SubresourceBody::Stream(pieces) => {
            let (server, cluster) = (request.server, &request.target.cluster);
            let Permitted { parsed, authorized } = &request.request;
            let stream = Stream::open(server, parsed, authorized.scope(), cluster, None)?;
            let resource = request.target.served.names().plural.clone();
            let pieces =
                pieces.inspect_err(move |why| tracing::warn!(%resource, why, "a program broke off its answer"));
            let mut response = reply::bytes(code, Vec::new(), TEXT);
            *response.body_mut() = stream.body(Body::from_stream(pieces));
            Reply::new(response, Form::Lasting)
        }
        SubresourceBody::Document(document) => {
            let form = request.negotiate(Supported::Object)?;
            reply::document(code, &document, form).into()
        }
    };
    reply::add_warnings(&mut reply.response, &[&*request.warnings, warnings].concat());
    Ok(reply)
}
