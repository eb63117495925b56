//! The steps of a release.

use super::drawing::{Arrow, Drawing, Look, frame};

pub(super) fn draw() -> String {
    let mut drawing = Drawing::new(
        356,
        "The steps of a release",
        "A new release is checked against every stored object before it is made. What hurts objects is refused until \
         each effect is accepted. Then bindings move step by step, by labels or by percentages, with a pause after \
         each step. A binding whose objects the release cannot carry stays behind and says why. At any step the \
         release can be taken back: aborted while bindings wait, rolled back when all have moved.",
    );
    let steps: [(u32, &str, [&str; 2]); 4] = [
        (24, "1  check", ["compare each stored", "object, before and after"]),
        (
            262,
            "2  accept",
            ["each effect by its name,", "up to a number of objects"],
        ),
        (
            500,
            "3  steps",
            ["by labels or percentages,", "with a pause after each"],
        ),
        (
            738,
            "4  complete",
            ["all bindings serve it;", "the old one can be retired"],
        ),
    ];
    for (x, name, notes) in steps {
        let look = if name.starts_with('4') {
            Look::Strong
        } else {
            Look::Plain
        };
        drawing.card(frame(x, 54, 198, 96), look, name, &notes);
    }
    for x in [222, 460, 698] {
        drawing.arrow(Arrow::Serves, &format!("M{x} 102 H{}", x + 36));
    }
    drawing.note(24, 38, "insula export publish --check");
    drawing.note(262, 38, "--accept EFFECT=N");
    drawing.note(500, 38, "--step 5%:10m");
    drawing.card(
        frame(262, 214, 198, 62),
        Look::Warm,
        "refused",
        &["nothing has changed"],
    );
    drawing.arrow(Arrow::Refers, "M123 150 V245 H258");
    drawing.note(134, 236, "hurts objects");
    drawing.card(
        frame(500, 214, 198, 96),
        Look::Warm,
        "bindings that stay",
        &["their objects would be", "hurt; the others go on"],
    );
    drawing.arrow(Arrow::Refers, "M599 150 V210");
    drawing.card(
        frame(738, 214, 198, 96),
        Look::Plain,
        "the release before",
        &["abort while bindings wait,", "rollback when all moved"],
    );
    drawing.arrow(Arrow::Refers, "M837 150 V210");
    drawing.arrow(Arrow::Refers, "M698 262 H734");
    drawing.arrow(Arrow::Asks, "M837 310 V334 H60 V154");
    drawing.note(80, 326, "the next attempt");
    drawing.end()
}
