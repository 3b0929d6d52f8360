//! The page of bounds in a real browser: every task, every curve, and the tip at the pointer.

use super::devtools::{Page, find};
use super::{RICH, mouse};
use crate::harness::{Scratch, run};
use serde_json::{Value, json};

fn opened(scratch: &Scratch, name: &str, arguments: &[&str]) -> Option<(Page, Value)> {
    let Some(browser) = find() else {
        eprintln!("skipped: needs a Chromium on the PATH or in TALEA_BROWSER");
        return None;
    };
    scratch.file(name, RICH);
    let ended =
        run(scratch, &[&["analyze", name, "--json", "--html", "bounds.html"], arguments].concat());
    let answer = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}", ended.err));
    let mut page = Page::new(&browser, scratch);
    page.open(&scratch.path().join("bounds.html"));
    page.settled();
    Some((page, answer))
}

#[test]
fn bounds_are_a_table_and_demand_against_supply_of_each_node() {
    let scratch = Scratch::new();
    let Some((mut page, answer)) = opened(&scratch, "rich.toml", &[]) else { return };
    page.shoot("bounds");
    assert_eq!(page.complaints(), Vec::<String>::new());
    let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks").len();
    assert_eq!(page.value("talea.drawn.rows"), json!(tasks));
    // The CPU, two partitions, the server.
    assert_eq!(
        page.value("talea.data.roots[0].plots.map((plot) => plot.place).sort()"),
        json!(["cpu", "partition", "partition", "server"])
    );
    assert_eq!(page.value("document.querySelectorAll('figure svg').length"), json!(4));
    // The circle marks the point where demand meets supply, with the numbers of the data.
    let wrong = page.value(
        "talea.data.roots[0].plots.filter((plot, i) => { \
           const circle = document.querySelectorAll('figure svg')[i].querySelector('circle').getBBox(); \
           const demand = talea.valueAt(plot.demand, plot.mark, false), supply = talea.valueAt(plot.supply, plot.mark, true); \
           return demand !== plot.asked || Math.abs(supply - plot.given) > plot.window / 500 \
             || !(circle.x > 40 && circle.x < 560 && circle.y > 0 && circle.y < 240); }).map((plot) => plot.node)",
    );
    assert_eq!(wrong, json!([]));
    // The tip shows the values at the pointer.
    let at = page.value(
        "(() => { const svg = document.querySelector('figure svg'); svg.scrollIntoView(); const box = svg.getBoundingClientRect(); \
         return [box.left + box.width / 2, box.top + box.height / 2]; })()",
    );
    let [x, y] = [0, 1].map(|i| at[i].as_f64().expect("a place"));
    mouse(&mut page, "mouseMoved", x, y, &json!({}));
    let tip = page.value("document.getElementById('tip').textContent");
    let tip = tip.as_str().expect("text");
    assert!(tip.contains("supply ") && tip.contains("demand ") && !tip.contains("NaN"), "{tip}");
    // In dark mode, and on a phone.
    let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    page.ask("Emulation.setEmulatedMedia", &features);
    let screen = json!({ "width": 400, "height": 800, "deviceScaleFactor": 2, "mobile": true });
    page.ask("Emulation.setDeviceMetricsOverride", &screen);
    page.settled();
    page.shoot("bounds-small-dark");
    assert_eq!(page.value("document.documentElement.scrollWidth <= 400"), true);
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn what_is_late_is_seen_and_a_hostile_name_is_text() {
    let scratch = Scratch::new();
    let name = "<!--<script>throw 1<\\script><img src=x onerror=throw(2)>&quot;.toml";
    let Some((mut page, answer)) = opened(&scratch, name, &["--what-if", "cost(loop)*1.9"]) else {
        return;
    };
    page.shoot("bounds-late");
    assert_eq!(page.complaints(), Vec::<String>::new());
    assert_eq!(page.value("document.title"), format!("{name}, analysed"));
    assert_eq!(page.value("document.querySelectorAll('img').length"), 0);
    assert_eq!(answer["proved"], false);
    let plot = "talea.data.roots[0].plots.find((plot) => plot.node === 'control')";
    assert_eq!(page.value(&format!("{plot}.exceeded")), true);
    assert!(page.value("document.querySelectorAll('figcaption .over').length").as_u64() > Some(0));
    assert!(
        page.value("document.getElementById('facts').textContent")
            .to_string()
            .contains("what if cost(loop)*1.9")
    );
}
