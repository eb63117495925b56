//! The ends of proxied answers, which are streamed.

use insula_edge::port::{Cut, LastFrame};

#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the extension server did not finish its answer in the time of a request")]
    Unfinished,
    #[error("the answer of the extension server cannot be passed on")]
    Panicked,
}

fn broken(why: Broken) -> LastFrame {
    Some(Err(axum::Error::new(why)))
}

/// Completes a body at the end of its time: streams of events end at any event.
pub(super) fn completes(cut: Cut) -> LastFrame {
    match cut {
        Cut::Late => None,
        Cut::Panicked => broken(Broken::Panicked),
    }
}

/// Breaks a body off at the end of its time.
pub(super) fn breaks(cut: Cut) -> LastFrame {
    broken(match cut {
        Cut::Late => Broken::Unfinished,
        Cut::Panicked => Broken::Panicked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, Bytes, to_bytes};
    use futures_util::{FutureExt, stream};
    use insula_edge::port::GuardedBody;
    use std::convert::Infallible;

    const BYTES_MAX: usize = 256 << 20;

    fn endless(last: fn(Cut) -> LastFrame) -> Body {
        // A socket yields, too, when its task has run for long.
        let zeros = stream::unfold((), |()| async {
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(Bytes::from_static(&[0; 8])), ()))
        });
        let end = tokio::time::sleep(std::time::Duration::from_millis(20)).boxed();
        GuardedBody::wrap(Body::from_stream(zeros), Some(end), last, None)
    }

    #[tokio::test]
    async fn an_endless_body_ends_in_time() {
        assert!(to_bytes(endless(completes), BYTES_MAX).await.is_ok());
        let broken = to_bytes(endless(breaks), BYTES_MAX).await.expect_err("breaks off");
        assert_eq!(broken.to_string(), Broken::Unfinished.to_string());
    }
}
