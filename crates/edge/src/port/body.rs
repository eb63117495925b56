//! Bodies that are observed while they are read.

use crate::guard::limits::Held;
use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// An observer of a body. It is dropped with the body.
pub trait Observer: Send + Unpin + 'static {
    /// Notices a frame before its reader gets it.
    fn frame(&mut self, _: &Frame<Bytes>) {}

    /// Notices that no frame follows: the body is complete or broken.
    fn end(&mut self) {}

    /// Takes the rest of a body whose reader stops before its end.
    fn stop(&mut self, _unread: Body) {}
}

/// Permits observe nothing: they are held until the body is sent.
impl Observer for Held {}

/// A body with an observer. Its frames, its length and its end are those of the body in it.
pub struct ObservedBody<O: Observer> {
    body: Body,
    observer: O,
    is_over: bool,
}

impl<O: Observer> ObservedBody<O> {
    /// Returns a body that tells an observer of its frames.
    pub fn wrap(body: Body, observer: O) -> Body {
        Body::new(ObservedBody {
            body,
            observer,
            is_over: false,
        })
    }
}

impl<O: Observer> HttpBody for ObservedBody<O> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &polled {
            Some(Ok(frame)) => self.observer.frame(frame),
            Some(Err(_)) | None => {
                self.is_over = true;
                self.observer.end();
            }
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<O: Observer> Drop for ObservedBody<O> {
    fn drop(&mut self) {
        if !self.is_over && !self.body.is_end_stream() {
            let unread = std::mem::take(&mut self.body);
            self.observer.stop(unread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::iter;
    use http_body_util::BodyExt;
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Notes {
        fn add(&self, note: impl Into<String>) {
            self.0.lock().expect("no test panics with it").push(note.into());
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().expect("no test panics with it"))
        }
    }

    impl Observer for Notes {
        fn frame(&mut self, frame: &Frame<Bytes>) {
            self.add(format!("{:?}", frame.data_ref().expect("a piece")));
        }

        fn end(&mut self) {
            self.add("end");
        }

        fn stop(&mut self, unread: Body) {
            self.add(format!("stopped before {:?}", unread.size_hint().exact()));
        }
    }

    #[tokio::test]
    async fn an_observer_sees_all_frames_and_one_end() {
        let notes = Notes::default();
        let pieces = iter(["a", "b"].map(|piece| Ok::<_, Infallible>(Bytes::from(piece))));
        let mut body = ObservedBody::wrap(Body::from_stream(pieces), notes.clone());
        assert_eq!(
            body.frame()
                .await
                .expect("a frame")
                .expect("no error")
                .into_data()
                .expect("a piece"),
            "a"
        );
        assert_eq!(notes.take(), [r#"b"a""#]);
        assert_eq!(body.collect().await.expect("no error").to_bytes(), "b");
        assert_eq!(notes.take(), [r#"b"b""#, "end"]);
    }

    #[tokio::test]
    async fn the_rest_of_a_body_goes_to_its_observer() {
        let notes = Notes::default();
        drop(ObservedBody::wrap(Body::from("unread"), notes.clone()));
        assert_eq!(notes.take(), ["stopped before Some(6)"]);
        drop(ObservedBody::wrap(Body::empty(), notes.clone()));
        assert!(notes.take().is_empty(), "nothing is left of it");
    }
}
