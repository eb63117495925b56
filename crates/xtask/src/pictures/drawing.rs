//! A sheet to draw on: areas, boxes, notes and arrows, in the colours of all pictures, for light
//! and dark pages.

use std::fmt::Write;

/// Width of every picture.
pub(super) const WIDTH: u32 = 960;

const STYLE: &str = r##"  <style>
    .page { fill: #ffffff; }
    .area { fill: #f2f5f9; stroke: #8696ab; stroke-width: 1.5; }
    .plain { fill: #ffffff; stroke: #b6c2d1; }
    .strong { fill: #e4efff; stroke: #3b6fb6; stroke-width: 1.5; }
    .warm { fill: #fdf3e0; stroke: #8a5a00; stroke-width: 1.5; }
    .outside { fill: #ffffff; stroke: #8696ab; stroke-width: 1.5; stroke-dasharray: 5 4; }
    text { fill: #1b2430; font: 14px ui-sans-serif, system-ui, "Helvetica Neue", Arial, sans-serif; }
    .name { font-weight: 600; }
    .note { fill: #56657a; font-size: 13px; }
    .arrow { fill: none; stroke-width: 1.8; }
    .refers { stroke: #8a5a00; }
    .serves { stroke: #3b6fb6; }
    .asks { stroke: #56657a; stroke-dasharray: 5 4; }
    .tip-refers { fill: #8a5a00; }
    .tip-serves { fill: #3b6fb6; }
    .tip-asks { fill: #56657a; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; }
      .area { fill: #161c26; stroke: #66768c; }
      .plain { fill: #0d1117; stroke: #435065; }
      .strong { fill: #14243d; stroke: #6ea3ee; }
      .warm { fill: #33260c; stroke: #e0a94a; }
      .outside { fill: #0d1117; stroke: #66768c; }
      text { fill: #e3e9f1; }
      .note { fill: #9fadc0; }
      .refers { stroke: #e0a94a; }
      .serves { stroke: #6ea3ee; }
      .asks { stroke: #9fadc0; }
      .tip-refers { fill: #e0a94a; }
      .tip-serves { fill: #6ea3ee; }
      .tip-asks { fill: #9fadc0; }
    }
  </style>
"##;

/// A rectangle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// Returns a rectangle from its corner and its size.
pub(super) fn frame(x: u32, y: u32, width: u32, height: u32) -> Frame {
    Frame { x, y, width, height }
}

/// Look of a box.
#[derive(Debug, Clone, Copy)]
pub(super) enum Look {
    Plain,
    Strong,
    Warm,
    Outside,
}

impl Look {
    fn class(self) -> &'static str {
        match self {
            Look::Plain => "plain",
            Look::Strong => "strong",
            Look::Warm => "warm",
            Look::Outside => "outside",
        }
    }
}

/// Meaning of an arrow.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arrow {
    /// From a thing to the one that it names.
    Refers,
    /// The way of data.
    Serves,
    /// A request.
    Asks,
}

impl Arrow {
    const ALL: [Arrow; 3] = [Arrow::Refers, Arrow::Serves, Arrow::Asks];

    fn name(self) -> &'static str {
        match self {
            Arrow::Refers => "refers",
            Arrow::Serves => "serves",
            Arrow::Asks => "asks",
        }
    }
}

/// A picture in the making.
#[derive(Debug)]
pub(super) struct Drawing {
    text: String,
}

impl Drawing {
    /// Begins a picture of this height, with its title and a description for those who cannot see
    /// it.
    pub(super) fn new(height: u32, title: &str, description: &str) -> Self {
        let mut drawing = Drawing { text: String::new() };
        drawing.line(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"title text\">"
        ));
        drawing.line(&format!("  <title id=\"title\">{}</title>", escaped(title)));
        drawing.line(&format!("  <desc id=\"text\">{}</desc>", escaped(description)));
        drawing.text.push_str(STYLE);
        drawing.line("  <defs>");
        for arrow in Arrow::ALL.map(Arrow::name) {
            drawing.line(&format!(
                "    <marker id=\"{arrow}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
                 markerHeight=\"7\" orient=\"auto\"><path class=\"tip-{arrow}\" d=\"M0 0 L8 4 L0 8 z\"/></marker>"
            ));
        }
        drawing.line("  </defs>");
        drawing.line(&format!(
            "  <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"10\"/>"
        ));
        drawing
    }

    /// Draws an area that holds others, with its name at its top.
    pub(super) fn area(&mut self, area: Frame, name: &str) {
        self.rectangle(area, "area", 8);
        self.text(area.x + 16, area.y + 24, "name", name);
    }

    /// Draws a box: a name, and notes below it.
    pub(super) fn card(&mut self, card: Frame, look: Look, name: &str, notes: &[&str]) {
        self.rectangle(card, look.class(), 6);
        let lines = u32::try_from(notes.len()).unwrap_or(0);
        let top = card.y + (card.height - 18 * lines) / 2 + 5;
        self.text(card.x + 14, top, "name", name);
        for (y, note) in (top + 18..).step_by(18).zip(notes) {
            self.text(card.x + 14, y, "note", note);
        }
    }

    /// Writes a note.
    pub(super) fn note(&mut self, x: u32, y: u32, note: &str) {
        self.text(x, y, "note", note);
    }

    /// Draws an arrow along a path of SVG.
    pub(super) fn arrow(&mut self, arrow: Arrow, path: &str) {
        let name = arrow.name();
        self.line(&format!(
            "  <path class=\"arrow {name}\" d=\"{path}\" marker-end=\"url(#{name})\"/>"
        ));
    }

    /// Ends the picture.
    pub(super) fn end(mut self) -> String {
        self.line("</svg>");
        self.text
    }

    fn rectangle(&mut self, Frame { x, y, width, height }: Frame, class: &str, radius: u32) {
        self.line(&format!(
            "  <rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"/>"
        ));
    }

    fn text(&mut self, x: u32, y: u32, class: &str, text: &str) {
        self.line(&format!(
            "  <text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>",
            escaped(text)
        ));
    }

    fn line(&mut self, line: &str) {
        writeln!(self.text, "{line}").expect("a text takes every byte");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
