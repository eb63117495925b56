//! An API of a provider in the workspaces of two tenants.

use super::drawing::{Arrow, Drawing, Look, frame};

pub(super) fn draw() -> String {
    let mut drawing = Drawing::new(
        452,
        "A provider's API in the workspaces of two tenants",
        "The workspace root:provider holds an APIExport with an APIResourceSchema in the versions v1 and v2 and an \
         APIConversion with rules. The server copies them as one bundle and compiles it once. APIBindings in \
         root:tenant-a and root:tenant-b refer to the export, and the bundle serves both versions in each of the two \
         workspaces. Clients talk to one workspace as to a Kubernetes server of its own.",
    );
    drawing.area(frame(24, 44, 276, 226), "root:provider");
    drawing.card(frame(44, 84, 236, 46), Look::Plain, "APIExport", &["widgets"]);
    drawing.card(frame(44, 144, 236, 46), Look::Plain, "APIResourceSchema", &["v1, v2"]);
    drawing.card(
        frame(44, 204, 236, 46),
        Look::Plain,
        "APIConversion",
        &["rules between v1 and v2"],
    );
    for (x, tenant, object) in [(404, "root:tenant-a", "ada"), (686, "root:tenant-b", "grace")] {
        drawing.area(frame(x, 44, 250, 226), tenant);
        drawing.card(frame(x + 20, 84, 210, 46), Look::Plain, "APIBinding", &["widgets"]);
        drawing.card(
            frame(x + 20, 172, 210, 76),
            Look::Plain,
            "widgets.example.io",
            &[object],
        );
    }
    drawing.arrow(Arrow::Refers, "M424 107 H284");
    drawing.arrow(Arrow::Refers, "M896 84 V24 H262 V80");
    drawing.note(322, 98, "refers to");
    drawing.arrow(Arrow::Serves, "M162 270 V312");
    drawing.note(174, 296, "copied together");
    drawing.card(
        frame(24, 316, 276, 66),
        Look::Strong,
        "one bundle",
        &["schema and rules, compiled once"],
    );
    drawing.arrow(Arrow::Serves, "M300 336 H569 V252");
    drawing.arrow(Arrow::Serves, "M569 336 H851 V252");
    drawing.note(318, 327, "serves v1 and v2");
    let clients = "kubectl, client-go, kube-rs, controllers: each in one version";
    drawing.card(frame(404, 386, 532, 46), Look::Outside, clients, &[]);
    drawing.arrow(Arrow::Asks, "M464 386 V252");
    drawing.arrow(Arrow::Asks, "M746 386 V252");
    drawing.note(474, 374, "v1");
    drawing.note(756, 374, "v2");
    drawing.end()
}
