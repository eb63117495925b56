//! The web console: its pages, and the sessions of browsers.
//!
//! ```text
//! GET  /console…            pages and assets, packed into the program
//! POST /console/session     sign-in: a SelfSubjectReview with the token in `Authorization`; its
//!                           answer gets a cookie with the token, sealed
//! *    /console/session/…   the same with a token of a provider of OpenID Connect (`login.rs`)
//! *    /console/api/<path>  the ordinary request for <path>, with the token of the cookie
//! ```
//! The console is no door of its own. [`Console::route`] only rewrites the head of a request before
//! the stages that all requests pass, with a token that the browser or the provider gave:
//! authentication, authorization, limits, audit and metrics see the ordinary request of the viewer.
//! It knows no object, and has no rights.

mod assets;
mod login;
mod refusal;
mod request;
mod session;

pub use assets::{guard_answer, guard_page};
pub use login::{Endpoints, Form, Login, Provider, encoded, escaped};
pub use request::{Console, Route, SignIn, serves};
