//! Versions around their union, and what of it is stored.

use super::drawing::{Arrow, Drawing, Look, frame};

pub(super) fn draw() -> String {
    let mut drawing = Drawing::new(
        420,
        "Three versions, their union, and a stored object",
        "Three versions v1, v2 and v3 are shown to clients. Rules lead from each to the union: the schema of the hub \
         with every field that the hub lacks, each value in one place. An object is stored in v1 with a residual: \
         the fields of the union that v1 cannot show. So a field that v2 and v3 share is one value, although v1 \
         lacks it.",
    );
    for (x, version, fields) in [
        (24, "v1", ["name", "size"]),
        (344, "v2", ["name, size", "color"]),
        (664, "v3", ["name, size", "color, weight"]),
    ] {
        drawing.card(
            frame(x, 24, 272, 84),
            Look::Outside,
            &format!("clients of {version}"),
            &fields,
        );
    }
    drawing.arrow(Arrow::Serves, "M160 212 V112");
    drawing.arrow(Arrow::Serves, "M480 172 V112");
    drawing.arrow(Arrow::Serves, "M800 172 V112");
    drawing.arrow(Arrow::Refers, "M510 108 V168");
    drawing.arrow(Arrow::Refers, "M830 108 V168");
    drawing.arrow(Arrow::Refers, "M190 108 V208");
    drawing.note(520, 144, "writes: merged by rules");
    drawing.note(366, 144, "reads: rules");
    drawing.card(
        frame(344, 172, 592, 84),
        Look::Strong,
        "the union: the hub, and every field that the hub lacks",
        &[
            "a version that no client sees, each value in one place",
            "name, size, color, weight",
        ],
    );
    drawing.area(frame(24, 212, 272, 184), "stored");
    drawing.card(frame(44, 248, 232, 62), Look::Plain, "object in v1", &["name, size"]);
    drawing.card(frame(44, 320, 232, 62), Look::Warm, "residual", &["color, weight"]);
    drawing.arrow(Arrow::Serves, "M296 300 H480 V260");
    drawing.arrow(Arrow::Refers, "M640 256 V350 H300");
    drawing.note(310, 292, "read");
    drawing.note(310, 342, "written as one, at one revision");
    drawing.end()
}
