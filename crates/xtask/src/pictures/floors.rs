//! The layers of crates, as the rule has them.

use super::drawing::{Arrow, Drawing, Look, WIDTH, frame};
use crate::floors::FLOORS;

/// Height of a layer, with the space below it.
const STEP: u32 = 68;

pub(super) fn draw() -> String {
    let names: Vec<String> = FLOORS
        .iter()
        .map(|floor| format!("{}: {}", floor.name, floor.crates.join(", ")))
        .collect();
    let count = u32::try_from(FLOORS.len()).unwrap_or(0);
    let mut drawing = Drawing::new(
        24 + STEP * count + 12,
        "The layers of crates",
        &format!(
            "A crate depends only on crates of lower layers. From the lowest up: {}.",
            names.join("; ")
        ),
    );
    for (y, floor) in (24..).step_by(STEP as usize).zip(FLOORS.iter().rev()) {
        let look = if floor.name == "rim" {
            Look::Outside
        } else {
            Look::Plain
        };
        let crates = floor.crates.join(", ");
        drawing.card(frame(24, y, WIDTH - 104, STEP - 10), look, floor.name, &[]);
        drawing.note(130, y + 26, &crates);
        drawing.note(130, y + 45, floor.what);
    }
    let (top, bottom) = (34, 24 + STEP * count - 20);
    drawing.arrow(Arrow::Refers, &format!("M{x} {top} V{bottom}", x = WIDTH - 58));
    drawing.note(WIDTH - 48, top + 10, "may");
    drawing.note(WIDTH - 48, top + 28, "name");
    drawing.end()
}
