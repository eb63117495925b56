//! The way of a request.

use super::drawing::{Arrow, Drawing, Look, frame};

/// Stages in the order of a request: the crate, and what each does.
const STAGES: [(&str, &str, &str); 4] = [
    ("located", "snapshot, logical cluster", "404"),
    ("authorized", "roles, as one permit", "403"),
    ("entered", "limits and fair share", "429"),
    ("resolved", "built-in, bound, defined", "404"),
];

pub(super) fn draw() -> String {
    let mut drawing = Drawing::new(
        470,
        "The way of a request",
        "HTTP, gRPC and the console's pages arrive at one edge, which authenticates the caller and accounts for the \
         work. In the pipeline a call is located in a snapshot of the store, authorized, let into its workspace and \
         resolved to an API; each stage is made only from the one before, and refuses with its own reason. The verbs \
         of the registry read a snapshot, commit under guards, or follow a cursor; conversion stands between them and \
         the bytes of the client.",
    );
    for (x, name, note) in [
        (24, "HTTP", "kubectl, controllers"),
        (330, "gRPC", "administrators"),
        (636, "console", "a browser's session"),
    ] {
        drawing.card(frame(x, 20, 300, 52), Look::Outside, name, &[note]);
        drawing.arrow(Arrow::Asks, &format!("M{0} 72 V96", x + 150));
    }
    drawing.card(
        frame(24, 100, 912, 56),
        Look::Plain,
        "edge: TLS, connection limits, request id, audit record, authentication",
        &["knows no object; 401 for an unknown caller"],
    );
    drawing.arrow(Arrow::Asks, "M480 156 V180");
    drawing.area(frame(24, 184, 912, 118), "pipeline: a call, in no wire format");
    for ((name, what, code), x) in STAGES.into_iter().zip((44..).step_by(222)) {
        drawing.card(frame(x, 220, 200, 66), Look::Strong, name, &[what]);
        drawing.note(x + 160, 244, code);
    }
    for x in [244, 466, 688] {
        drawing.arrow(Arrow::Asks, &format!("M{x} 253 H{}", x + 20));
    }
    drawing.arrow(Arrow::Asks, "M480 302 V326");
    for (x, verb, notes) in [
        (24, "read", "snapshot, conversion, JSON or table"),
        (330, "write", "policies, prune, validate, commit"),
        (636, "watch", "a cursor over whole revisions"),
    ] {
        drawing.card(frame(x, 330, 300, 56), Look::Plain, verb, &[notes]);
    }
    drawing.arrow(Arrow::Serves, "M174 418 V390");
    drawing.arrow(Arrow::Refers, "M480 386 V414");
    drawing.arrow(Arrow::Serves, "M786 418 V390");
    let store = "store: ordered revisions, embedded or on etcd";
    drawing.card(frame(24, 418, 912, 36), Look::Warm, store, &[]);
    drawing.end()
}
