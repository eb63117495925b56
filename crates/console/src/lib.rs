//! The web console: its pages, and the sessions of browsers.
//!
//! ```text
//! GET  /console…            pages and assets, packed into the program
//! POST /console/session     sign-in: a SelfSubjectReview with the token in `Authorization`; its
//!                           answer gets a cookie with the token, sealed
//! *    /console/api/<path>  the ordinary request for <path>, with the token of the cookie
//! ```
//! The console is no door of its own. [`Console::route`] only rewrites the head of a request before
//! the stages that all requests pass: authentication, authorization, limits, audit and metrics see
//! the ordinary request of the viewer. It knows no object, and has no rights.

mod assets;
mod refusal;
mod request;
mod session;

pub use assets::guard_page;
pub use request::{Console, Route, SignIn};
