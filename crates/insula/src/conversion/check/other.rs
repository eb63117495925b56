//! The other converter: a command, or a webhook.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Request, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use serde_json::{Value, json};

use super::Converted;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";
/// Maximum number of objects of one review.
const OBJECTS_MAX: usize = 100;
/// Maximum number of bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Longest wait for an answer: Kubernetes' limit for webhooks.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A converter that answers ConversionReviews.
pub(super) enum Other {
    Command(String),
    Webhook {
        url: String,
        http: Box<Client<HttpsConnector<HttpConnector>, Full<Bytes>>>,
        runtime: tokio::runtime::Runtime,
    },
}

impl Other {
    /// Returns the converter at a URL, or the command.
    ///
    /// # Errors
    /// The file of certificates cannot be read.
    pub(super) fn new(text: &str, authority: Option<&Path>) -> anyhow::Result<Other> {
        if !text.starts_with("https://") && !text.starts_with("http://") {
            return Ok(Other::Command(text.to_owned()));
        }
        insula_server::install_provider();
        let tls = ClientConfig::builder()
            .with_root_certificates(roots(authority)?)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Most webhooks speak HTTP/1.1 alone.
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        Ok(Other::Webhook {
            url: text.to_owned(),
            http: Box::new(Client::builder(TokioExecutor::new()).build(connector)),
            runtime: crate::runtime()?,
        })
    }

    /// Converts objects: each to the result or the message of a refusal.
    ///
    /// # Errors
    /// There is no answer, or none that is a ConversionReview with as many objects.
    pub(super) fn convert(&self, desired: &str, objects: &[Value]) -> anyhow::Result<Vec<Converted>> {
        let mut out = Vec::new();
        for some in objects.chunks(OBJECTS_MAX) {
            match self.review(desired, some)? {
                Ok(converted) => out.extend(converted.into_iter().map(Ok)),
                Err(why) if some.len() == 1 => out.push(Err(why)),
                // One object fails the whole review: each is asked for alone.
                Err(_) => {
                    for one in some {
                        let one = self.review(desired, std::slice::from_ref(one))?;
                        out.push(one.map(|mut converted| converted.swap_remove(0)));
                    }
                }
            }
        }
        Ok(out)
    }

    fn review(&self, desired: &str, objects: &[Value]) -> anyhow::Result<Result<Vec<Value>, String>> {
        let request = json!({"uid": "check", "desiredAPIVersion": desired, "objects": objects});
        let review = json!({"apiVersion": API_VERSION, "kind": KIND, "request": request}).to_string();
        let answer = match self {
            Other::Command(command) => run(command, &review, TIMEOUT)?,
            Other::Webhook { url, http, runtime } => {
                let request = Request::post(url.as_str())
                    .header(CONTENT_TYPE, "application/json")
                    .body(Full::new(Bytes::from(review)))
                    .with_context(|| format!("{url} is no URL"))?;
                let answered = runtime.block_on(async {
                    tokio::time::timeout(TIMEOUT, async {
                        let answer = http.request(request).await?;
                        let status = answer.status();
                        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
                        let body = body.map_err(|error| anyhow!(error))?.to_bytes();
                        if !status.is_success() {
                            bail!("{status}: {}", String::from_utf8_lossy(&body).trim());
                        }
                        Ok(body)
                    })
                    .await
                });
                let answer = answered.map_err(|_| anyhow!("no answer in {} s", TIMEOUT.as_secs()));
                answer.and_then(|answer| answer).with_context(|| url.clone())?
            }
        };
        let who = match self {
            Other::Command(command) => command,
            Other::Webhook { url, .. } => url,
        };
        read(&answer, objects.len()).with_context(|| who.clone())
    }
}

/// Reads the response of a review: the objects, or the message of a failure.
fn read(answer: &[u8], count: usize) -> anyhow::Result<Result<Vec<Value>, String>> {
    let answer: Value = serde_json::from_slice(answer).context("the answer is no ConversionReview")?;
    let response = &answer["response"];
    match response["result"]["status"].as_str() {
        Some("Success") => {}
        Some(_) => {
            let message = response["result"]["message"].as_str();
            return Ok(Err(message.unwrap_or("no message").to_owned()));
        }
        None => bail!("the answer is no ConversionReview: it has no response.result.status"),
    }
    let converted = response["convertedObjects"].as_array().cloned().unwrap_or_default();
    if converted.len() != count {
        bail!("the answer has {} objects instead of {count}", converted.len());
    }
    Ok(Ok(converted))
}

/// Runs a command with a text on its standard input, and returns its standard output. Ends its
/// shell when it takes too long.
fn run(command: &str, input: &str, time: Duration) -> anyhow::Result<Bytes> {
    let end = Instant::now() + time;
    let started = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = started.context("there is no shell")?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
        bail!("{command}: it has no standard input and output");
    };
    let input = input.to_owned();
    // A command may answer before it has read everything, and end well without. What it starts may
    // hold its output open, so that no thread is waited for.
    std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let (sender, answer) = mpsc::channel();
    std::thread::spawn(move || {
        let mut out = Vec::new();
        let read = stdout.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut out);
        // Nobody waits any more after the time.
        let _ = sender.send(read.map(|_| out));
    });
    let read = answer.recv_timeout(time);
    let status = loop {
        match child.try_wait().with_context(|| command.to_owned())? {
            Some(status) if read.is_ok() => break status,
            None if read.is_ok() && Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{command}: no answer in {} s", time.as_secs());
            }
        }
    };
    if !status.success() {
        bail!("{command}: {status}");
    }
    Ok(read?.with_context(|| command.to_owned())?.into())
}

fn roots(authority: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = authority else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        return Ok(roots);
    };
    let name = || path.display().to_string();
    for certificate in CertificateDer::pem_file_iter(path).with_context(name)? {
        roots.add(certificate.with_context(name)?).with_context(name)?;
    }
    if roots.is_empty() {
        bail!("{} has no certificate", path.display());
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_answers_or_is_ended() {
        let long = Duration::from_secs(60);
        assert_eq!(run("cat", "a\nb", long).expect("it answers"), "a\nb");
        assert_eq!(run("echo a", &"b".repeat(1 << 20), long).expect("it answers"), "a\n");
        let error = |command: &str, time| run(command, "", time).expect_err(command).to_string();
        assert_eq!(error("exit 3", long), "exit 3: exit status: 3");
        let short = Duration::from_millis(50);
        // Without `exec`, what the shell starts would outlast it.
        for command in ["exec sleep 600", "exec >&-; exec sleep 600"] {
            assert_eq!(error(command, short), format!("{command}: no answer in 0 s"));
        }
    }
}
