//! Chart in the form of the paper: a bar from the least to the largest time with a dot at the mean,
//! and crosses for shares on a second axis.

use talea_study::svg::{GREY, GRID, Svg};

/// Bar of one configuration.
pub(super) struct Bar {
    pub(super) name: String,
    /// Group of the bar. Bars of one group stand together under its name.
    pub(super) group: &'static str,
    /// Least, mean and largest time, in ms.
    pub(super) span: [f64; 3],
    /// Late frames and late messages, in percent.
    pub(super) marks: [f64; 2],
    /// Values of the simulation, as in `span`.
    pub(super) beside: Option<[f64; 3]>,
}

/// Chart of all configurations.
pub(super) struct Chart {
    pub(super) title: String,
    /// Deadline in ms.
    pub(super) limit: f64,
    pub(super) bars: Vec<Bar>,
}

const LEFT: f64 = 64.0;
const STEP: f64 = 30.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 320.0;
const GROUP_GAP: f64 = 22.0;

impl Chart {
    /// Renders the chart as SVG.
    pub(super) fn svg(&self) -> String {
        let most = self.bars.iter().map(|bar| bar.span[2]).fold(self.limit, f64::max);
        let high = (most / self.limit).ceil() * self.limit;
        let at = |ms: f64| BOTTOM - (BOTTOM - TOP) * ms / high;
        let share = |percent: f64| BOTTOM - (BOTTOM - TOP) * percent / 100.0;
        let right = self.right();
        let mut svg = Svg::new(right + 60.0, 440.0, 12);
        svg.text([LEFT, 26.0], "font-size=\"16\" font-weight=\"600\"", &self.title);
        let key = "blue: least, mean and largest time of a frame, ms; grey: simulated, where both \
                   are; dashed: its deadline; np: not preemptive";
        svg.text([LEFT, 412.0], GREY, key);
        let key = "crosses: late frames (red) and late messages (orange), %";
        svg.text([LEFT, 428.0], GREY, key);
        for step in 0..=4 {
            let part = f64::from(step) / 4.0;
            let y = share(part * 100.0);
            svg.path(&format!("M{LEFT} {y:.1}H{right:.0}"), GRID);
            let (ms, percent) = (format!("{:.0}", high * part), format!("{:.0} %", part * 100.0));
            svg.text([LEFT - 6.0, y + 4.0], "text-anchor=\"end\" fill=\"#2f6fb0\"", &ms);
            svg.text([right + 6.0, y + 4.0], "fill=\"#cc3524\"", &percent);
        }
        let limit = format!("M{LEFT} {:.1}H{right:.0}", at(self.limit));
        svg.path(&limit, "stroke=\"#222\" stroke-dasharray=\"4 3\"");
        let mut x = LEFT;
        for group in self.groups() {
            x += GROUP_GAP;
            label(&mut svg, group[0].group, x + STEP * group.len() as f64 / 2.0);
            for bar in group {
                let middle = x + STEP / 2.0;
                let [least, mean, largest] = bar.span.map(at);
                svg.raw(format_args!(
                    "<path d=\"M{middle:.0} {least:.1}V{largest:.1}\" stroke=\"#2f6fb0\" stroke-width=\"9\" opacity=\".45\">\
                     <title>{}, {}: {:.0} / {:.0} / {:.0} ms</title></path>\
                     <circle cx=\"{middle:.0}\" cy=\"{mean:.1}\" r=\"3.5\" fill=\"#2f6fb0\"/>",
                    bar.name, bar.group, bar.span[0], bar.span[1], bar.span[2]
                ));
                if let Some([least, mean, largest]) = bar.beside.map(|span| span.map(at)) {
                    let (x, dash) = (middle + 9.0, middle + 6.0);
                    let path = format!("M{x:.0} {least:.1}V{largest:.1}M{dash:.0} {mean:.1}h6");
                    svg.path(&path, "stroke=\"#777\" stroke-width=\"2\"");
                }
                for (percent, color) in bar.marks.iter().zip(["#cc3524", "#d9822b"]) {
                    let (x, y) = (middle - 3.5, share(*percent) - 3.5);
                    let style = format!("class=\"late\" stroke=\"{color}\" stroke-width=\"2\"");
                    svg.path(&format!("M{x:.0} {y:.1}l7 7m0 -7l-7 7"), &style);
                }
                let y = BOTTOM + 14.0;
                let turned =
                    format!("transform=\"rotate(-60 {middle:.0} {y:.0})\" text-anchor=\"end\"");
                svg.text([middle, y], &turned, &bar.name);
                x += STEP;
            }
        }
        svg.finish()
    }

    /// Returns the runs of bars of one group.
    fn groups(&self) -> impl Iterator<Item = &[Bar]> {
        self.bars.chunk_by(|a, b| a.group == b.group)
    }

    /// Returns the right edge of the last bar.
    fn right(&self) -> f64 {
        LEFT + GROUP_GAP * self.groups().count() as f64 + STEP * self.bars.len() as f64
    }
}

/// Draws the name of a group above its middle.
fn label(svg: &mut Svg, name: &str, middle: f64) {
    let name = match name {
        "both" => "both versions".to_owned(),
        one => format!("{one} versions only"),
    };
    svg.text([middle, TOP - 10.0], "text-anchor=\"middle\" font-weight=\"600\"", &name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_holds_its_bars_its_crosses_and_its_limit() {
        let bar = |group| Bar {
            name: "G-EDF".to_owned(),
            group,
            span: [200.0, 300.0, 700.0],
            marks: [5.0, 0.0],
            beside: None,
        };
        let chart = Chart {
            title: "frames".to_owned(),
            limit: 500.0,
            bars: vec![bar("CPU"), bar("CPU"), bar("both")],
        };
        let svg = chart.svg();
        assert_eq!((svg.matches("<circle").count(), svg.matches("class=\"late\"").count()), (3, 6));
        assert_eq!(svg.matches("CPU versions only").count(), 1);
        // The scale ends at twice the deadline.
        assert!(svg.contains("M64 192.0H"), "{svg}");
        assert!(svg.contains(">1000<") && svg.contains(">both versions<"));
    }
}
