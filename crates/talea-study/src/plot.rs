//! Line charts as SVG: panels side by side, with one scale and one legend.

#![allow(clippy::cast_precision_loss, reason = "a picture is exact to a tenth of a pixel")]

use crate::svg::{GREY, GREY_END, GREY_MIDDLE, GRID, Svg, polyline};

/// Line of a chart.
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Coordinates x and y.
    pub points: Vec<(f64, f64)>,
}

/// Panel of a figure.
pub struct Panel {
    /// Title of the panel.
    pub title: String,
    /// Lines of the panel.
    pub series: Vec<Series>,
}

/// Figure with panels of one scale.
pub struct Figure<'a> {
    /// Title of the figure.
    pub title: String,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis.
    pub y: &'a str,
    /// Panels, from left to right.
    pub panels: Vec<Panel>,
}

const COLORS: [&str; 8] =
    ["#2f6fb0", "#d9822b", "#1d7a3a", "#cc3524", "#7b4fa3", "#8c6d3f", "#d45f9b", "#6b6b6b"];
const PANEL: f64 = 300.0;
const LEFT: f64 = 60.0;
const GAP: f64 = 24.0;
const TOP: f64 = 74.0;
const BOTTOM: f64 = 320.0;

impl Figure<'_> {
    /// Renders the figure as SVG.
    pub fn svg(&self) -> String {
        let count = self.panels.len().max(1) as f64;
        let names = self.panels.first().map(|panel| panel.series.as_slice()).unwrap_or_default();
        let longest = names.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        // Letters of 12 and of 16 points are about 7 and 9 wide.
        let width = (LEFT + count * (PANEL + GAP) + 34.0 + 7.0 * longest as f64)
            .max(LEFT + 20.0 + 9.0 * self.title.chars().count() as f64);
        let all =
            || self.panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
        let right = Axis::to(all().map(|point| point.0).fold(0.0, f64::max));
        let high = Axis::to(all().map(|point| point.1).fold(0.0, f64::max));
        let high = Axis { end: high.step * high.steps() as f64, ..high };
        let mut svg = Svg::new(width, 380.0, 12);
        svg.text([LEFT, 26.0], "font-size=\"16\" font-weight=\"600\"", &self.title);
        svg.text([14.0, TOP], &format!("transform=\"rotate(-90 14 {TOP})\" {GREY_END}"), self.y);
        for (number, panel) in self.panels.iter().enumerate() {
            let x = LEFT + number as f64 * (PANEL + GAP);
            panel_at(&mut svg, x, panel, (&right, &high), number == 0);
            svg.text([x + PANEL / 2.0, BOTTOM + 38.0], GREY_MIDDLE, self.x);
        }
        let legend = LEFT + count * (PANEL + GAP);
        for (number, series) in names.iter().enumerate() {
            let y = TOP + 10.0 + number as f64 * 20.0;
            let color = COLORS[number % COLORS.len()];
            let line = format!("stroke=\"{color}\" stroke-width=\"2.5\"");
            svg.path(&format!("M{legend:.0} {y:.0}h18"), &line);
            svg.text([legend + 24.0, y + 4.0], "", &series.name);
        }
        svg.finish()
    }
}

fn panel_at(svg: &mut Svg, x: f64, panel: &Panel, (right, high): (&Axis, &Axis), labelled: bool) {
    let at_x = |value: f64| x + PANEL * value / right.end;
    let at_y = |value: f64| BOTTOM - (BOTTOM - TOP) * value / high.end;
    svg.text([x, TOP - 14.0], "font-weight=\"600\"", &panel.title);
    for (value, name) in right.ticks() {
        let px = at_x(value);
        // Numbers at the edges are aligned inward, because the neighbours' numbers begin there.
        let anchor = match px - x {
            ..1.0 => "start",
            off if off > PANEL - 1.0 => "end",
            _ => "middle",
        };
        svg.text([px, BOTTOM + 18.0], &format!("text-anchor=\"{anchor}\" {GREY}"), &name);
    }
    for (value, name) in high.ticks() {
        let py = at_y(value);
        svg.path(&format!("M{x:.0} {py:.1}h{PANEL}"), GRID);
        if labelled {
            svg.text([x - 6.0, py + 4.0], GREY_END, &name);
        }
    }
    for (number, series) in panel.series.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let line = polyline(series.points.iter().map(|&(px, py)| (at_x(px), at_y(py))));
        let style = "stroke-width=\"2\" fill=\"none\" stroke-linejoin=\"round\"";
        svg.path(&line, &format!("stroke=\"{color}\" {style}"));
    }
}

/// Axis from zero to `end`, with a number at each multiple of a round step.
struct Axis {
    end: f64,
    step: f64,
}

impl Axis {
    /// Creates an axis with at most five steps. Rounds `most` up to a multiple of the step that is
    /// close.
    fn to(most: f64) -> Axis {
        let most = if most > 0.0 { most } else { 1.0 };
        let magnitude = 10_f64.powf(most.log10().floor() - 1.0);
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 25.0].map(|step| step * magnitude);
        let step = steps.into_iter().find(|step| most / step < 5.0 + 1e-9).unwrap_or(most);
        let mut axis = Axis { end: most, step };
        let round = axis.step * axis.steps() as f64;
        if round < 1.05 * most {
            axis.end = round;
        }
        axis
    }

    /// Returns the number of steps up to the end. The last step may be incomplete.
    fn steps(&self) -> u32 {
        (self.end / self.step - 1e-9).ceil() as u32
    }

    /// Returns the positions and the texts of the numbers.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        let decimals = (0..4).find(|&places| {
            let scaled = self.step * 10_f64.powi(places);
            (scaled - scaled.round()).abs() < 1e-6
        });
        let decimals = decimals.unwrap_or(4) as usize;
        (0..=self.steps())
            .map(|number| f64::from(number) * self.step)
            .filter(|value| *value < self.end * (1.0 + 1e-9))
            .map(move |value| (value, format!("{value:.decimals$}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_holds_its_lines_and_names() {
        let series =
            |name: &str| Series { name: name.to_owned(), points: vec![(0.0, 1.0), (1024.0, 19.9)] };
        let panel =
            Panel { title: "rm".to_owned(), series: vec![series("1 CPU"), series("2 CPUs")] };
        let figure =
            Figure { title: "create".to_owned(), x: "specs", y: "µs", panels: vec![panel] };
        let svg = figure.svg();
        assert_eq!(svg.matches("stroke-linejoin").count(), 2);
        assert!(svg.contains(">2 CPUs<") && svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn axes_have_round_numbers_that_are_written_as_they_are() {
        let ticks =
            |most: f64| Axis::to(most).ticks().map(|(_, name)| name).collect::<Vec<_>>().join(" ");
        assert_eq!(ticks(97.5), "0 20 40 60 80 100");
        assert_eq!(ticks(0.5), "0.0 0.1 0.2 0.3 0.4 0.5");
        assert_eq!(ticks(1024.0), "0 250 500 750 1000");
        assert_eq!(ticks(47.7), "0 10 20 30 40 50");
        assert_eq!(ticks(1.2), "0.00 0.25 0.50 0.75 1.00 1.25");
        assert_eq!(ticks(0.0), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert!(
            (Axis::to(1024.0).end - 1024.0).abs() < 1e-9,
            "too far from a round number to go there"
        );
    }
}
