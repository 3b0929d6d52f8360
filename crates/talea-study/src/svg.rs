//! Writer of pictures as SVG: plain elements and text, which need no library, script or font.

use std::fmt::Write;

/// Attributes of a line of a grid.
pub const GRID: &str = "stroke=\"#e4e4e4\"";
/// Attributes of secondary text.
pub const GREY: &str = "fill=\"#555\"";
/// Attributes of secondary text that ends at its position.
pub const GREY_END: &str = "text-anchor=\"end\" fill=\"#555\"";
/// Attributes of secondary text around its position.
pub const GREY_MIDDLE: &str = "text-anchor=\"middle\" fill=\"#555\"";

/// Picture.
#[derive(Debug)]
pub struct Svg(String);

impl Svg {
    /// Begins a white picture.
    pub fn new(width: f64, height: f64, font_size: u32) -> Svg {
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"{font_size}\" fill=\"#222\" role=\"img\">\n\
             <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>\n"
        ))
    }

    /// Adds a text, which the function escapes.
    pub fn text(&mut self, [x, y]: [f64; 2], attributes: &str, text: &str) {
        self.raw(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>",
            escaped(text)
        ));
    }

    /// Adds a path.
    pub fn path(&mut self, path: &str, attributes: &str) {
        self.raw(format_args!("<path d=\"{path}\" {attributes}/>"));
    }

    /// Adds a filled rectangle.
    pub fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], color: &str) {
        self.raw(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height:.0}\" fill=\"{color}\"/>"
        ));
    }

    /// Adds elements as they are.
    pub fn raw(&mut self, elements: std::fmt::Arguments<'_>) {
        // Writing to a String can't fail.
        let _ = writeln!(self.0, "{elements}");
    }

    /// Ends the picture.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// Returns the path through these points.
pub fn polyline(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    points.into_iter().fold(String::new(), |mut path, (x, y)| {
        let verb = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{verb}{x:.2} {y:.1}");
        path
    })
}

/// Escapes text for an element of XML or HTML, and replaces characters that XML does not allow.
pub fn escaped(text: &str) -> String {
    let allowed = |c: char| (!c.is_control() || c == '\n') && !matches!(c, '\u{fffe}' | '\u{ffff}');
    let text: String = text.chars().map(|c| if allowed(c) { c } else { '\u{fffd}' }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
