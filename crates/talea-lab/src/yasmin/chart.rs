//! Chart in the form of the paper: a bar from the least to the largest time with a dot at the mean,
//! and crosses for shares on a second axis.

use std::fmt::Write;

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
        let mut body = String::new();
        let mut x = LEFT;
        let mut group = ("", LEFT);
        for bar in &self.bars {
            if bar.group != group.0 {
                label(&mut body, group, x);
                x += GROUP_GAP;
                group = (bar.group, x);
            }
            let middle = x + STEP / 2.0;
            let [least, mean, largest] = bar.span.map(at);
            let _ = writeln!(
                body,
                "<path d=\"M{middle:.0} {least:.1}V{largest:.1}\" stroke=\"#2f6fb0\" stroke-width=\"9\" opacity=\".45\">\
                 <title>{}, {}: {:.0} / {:.0} / {:.0} ms</title></path>\
                 <circle cx=\"{middle:.0}\" cy=\"{mean:.1}\" r=\"3.5\" fill=\"#2f6fb0\"/>",
                bar.name, bar.group, bar.span[0], bar.span[1], bar.span[2]
            );
            if let Some([least, mean, largest]) = bar.beside.map(|span| span.map(at)) {
                let x = middle + 9.0;
                let _ = writeln!(
                    body,
                    "<path d=\"M{x:.0} {least:.1}V{largest:.1}M{:.0} {mean:.1}h6\" stroke=\"#777\" stroke-width=\"2\"/>",
                    x - 3.0
                );
            }
            for (percent, color) in bar.marks.iter().zip(["#cc3524", "#d9822b"]) {
                let y = share(*percent);
                let _ = writeln!(
                    body,
                    "<path class=\"late\" d=\"M{:.0} {:.1}l7 7m0 -7l-7 7\" stroke=\"{color}\" stroke-width=\"2\"/>",
                    middle - 3.5,
                    y - 3.5
                );
            }
            let _ = writeln!(
                body,
                "<text x=\"{middle:.0}\" y=\"{:.0}\" transform=\"rotate(-60 {middle:.0} {:.0})\" text-anchor=\"end\">{}</text>",
                BOTTOM + 14.0,
                BOTTOM + 14.0,
                bar.name
            );
            x += STEP;
        }
        label(&mut body, group, x);
        let mut text = head(&self.title, x);
        for step in 0..=4 {
            let part = f64::from(step) / 4.0;
            let y = share(part * 100.0);
            let _ = writeln!(
                text,
                "<path d=\"M{LEFT} {y:.1}H{x:.0}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#2f6fb0\">{:.0}</text>\
                 <text x=\"{:.0}\" y=\"{:.1}\" fill=\"#cc3524\">{:.0} %</text>",
                LEFT - 6.0,
                y + 4.0,
                high * part,
                x + 6.0,
                y + 4.0,
                part * 100.0
            );
        }
        let _ = writeln!(
            text,
            "<path d=\"M{LEFT} {y:.1}H{x:.0}\" stroke=\"#222\" stroke-dasharray=\"4 3\"/>",
            y = at(self.limit)
        );
        text + &body + "</svg>\n"
    }
}

/// Draws the name of a group above its middle.
fn label(text: &mut String, (name, from): (&str, f64), to: f64) {
    let name = match name {
        "" => return,
        "both" => "both versions".to_owned(),
        one => format!("{one} versions only"),
    };
    let middle = f64::midpoint(from, to);
    let y = TOP - 10.0;
    let _ = writeln!(
        text,
        "<text x=\"{middle:.0}\" y=\"{y}\" text-anchor=\"middle\" font-weight=\"600\">{name}</text>"
    );
}

fn head(title: &str, right: f64) -> String {
    let width = right + 60.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} 440\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\" role=\"img\">\n\
         <rect width=\"{width:.0}\" height=\"440\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"600\">{title}</text>\n\
         <text x=\"{LEFT}\" y=\"412\" fill=\"#555\">blue: least, mean and largest time of a frame, ms; grey: simulated, where both are; \
         dashed: its deadline; np: not preemptive</text>\n\
         <text x=\"{LEFT}\" y=\"428\" fill=\"#555\">crosses: late frames (red) and late messages (orange), %</text>\n"
    )
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
