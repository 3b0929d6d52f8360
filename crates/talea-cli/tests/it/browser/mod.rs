//! The page in a real headless browser: it draws the simulation, it zooms, and it has no errors.
//!
//! Needs a Chromium on the PATH or named by `TALEA_BROWSER`; `TALEA_BROWSER=required` makes its
//! absence an error. If `TALEA_SHOTS` names a folder, screenshots are saved there.

mod bounds;
mod devtools;

use crate::harness::{Scratch, run};
use devtools::{Page, find, unbase64};
use serde_json::{Value, json};

/// 20 tasks on 4 CPUs with temporary overload: some 54,000 jobs and 54,000 arrivals.
const BUSY: &str = "\
duration = \"3s\"

[[scheduler]]
name = \"quad\"
policy = \"edf\"
cpus = 4

[[task]]
name = \"worker\"
count = 18
period = \"1ms\"
cost = { low = \"0.15ms\", high = \"0.9ms\", share = 12 }

[[task]]
name = \"slow\"
period = \"10ms\"
cost = { min = \"1ms\", max = \"4ms\" }

[[task]]
name = \"glacial\"
period = \"100ms\"
cost = { min = \"1ms\", max = \"40ms\" }
";

/// Partitions, a server with a budget, overload: every drawn element.
pub(crate) const RICH: &str = "\
duration = \"2s\"

[[scheduler]]
name = \"cpu0\"
policy = \"fp\"

[[scheduler]]
name = \"network\"
in = \"cpu0\"
server = \"deferrable\"
budget = \"1ms\"
period = \"50ms\"
priority = 200

[[scheduler]]
name = \"partitions\"
in = \"cpu0\"
policy = \"partitions\"
frame = \"40ms\"

[[scheduler.slot]]
owner = \"vision\"
length = \"20ms\"

[[scheduler.slot]]
owner = \"control\"
length = \"20ms\"

[[scheduler]]
name = \"vision\"
in = \"partitions\"
policy = \"fifo\"

[[scheduler]]
name = \"control\"
in = \"partitions\"
policy = \"rm\"

[[task]]
name = \"camera\"
in = \"vision\"
period = \"40ms\"
cost = \"14ms\"

[[task]]
name = \"logger-with-a-rather-long-name\"
in = \"vision\"
period = \"80ms\"
cost = { low = \"1ms\", high = \"14ms\", share = 300 }

[[task]]
name = \"loop\"
in = \"control\"
period = \"40ms\"
offset = \"20ms\"
cost = \"10ms\"

[[task]]
name = \"requests\"
in = \"network\"
period = \"10ms\"
separation_max = \"110ms\"
cost = { min = \"0.2ms\", max = \"0.65ms\" }
";

/// Opens a page of `system` in a browser; `None` without a browser.
fn opened(scratch: &Scratch, name: &str, system: &str) -> Option<Page> {
    let Some(browser) = find() else {
        eprintln!("skipped: needs a Chromium on the PATH or in TALEA_BROWSER");
        return None;
    };
    scratch.file(name, system);
    let ended =
        run(scratch, &["simulate", name, "--json", "--html", "run.html", "--csv", "run.csv"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    scratch.file("run.json", &ended.out);
    let mut page = Page::new(&browser, scratch);
    page.open(&scratch.path().join("run.html"));
    page.settled();
    Some(page)
}

fn mouse(page: &mut Page, kind: &str, x: f64, y: f64, more: &Value) {
    let mut event = json!({ "type": kind, "x": x, "y": y });
    for (key, value) in more.as_object().into_iter().flatten() {
        event[key] = value.clone();
    }
    page.ask("Input.dispatchMouseEvent", &event);
}

fn press(page: &mut Page, key: &str) {
    page.ask("Input.dispatchKeyEvent", &json!({ "type": "keyDown", "key": key, "text": key }));
    page.ask("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": key }));
    page.settled();
}

fn range(page: &mut Page) -> (f64, f64) {
    let view = page.value("talea.view()");
    (view[0].as_f64().expect("from"), view[1].as_f64().expect("to"))
}

/// Returns the drawn elements, and a checksum of the first chart's canvas.
fn look(page: &mut Page) -> (Value, Value) {
    page.settled();
    let sum = "(() => { const c = document.querySelector('.chart canvas'), d = c.getContext('2d')\
               .getImageData(0, 0, c.width, c.height).data; let h = 0; for (let i = 0; i < d.length; i++) \
               h = (h * 31 + d[i]) | 0; return h; })()";
    let drawn = page.value("talea.drawn");
    (drawn, page.value(sum))
}

#[test]
fn l22_the_page_draws_100_000_events_and_zooms_in_a_real_browser() {
    let scratch = Scratch::new();
    let Some(mut page) = opened(&scratch, "busy.toml", BUSY) else { return };
    assert_eq!(page.complaints(), Vec::<String>::new());
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect(name);
    let answer: Value = serde_json::from_str(&read("run.json")).expect("JSON");
    let sum = |what: &str| -> u64 {
        let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks").iter();
        tasks.map(|task| task[what].as_u64().expect("a number")).sum()
    };
    let csv = read("run.csv");
    let due = |line: &&str| {
        line.split(',').nth(3).and_then(|at| at.parse().ok()) <= Some(3_000_000_000u64)
    };
    let due = csv.lines().skip(1).filter(due).count() as u64;
    assert!(sum("arrived") + sum("completed") > 100_000, "{answer}");

    let (drawn, whole) = look(&mut page);
    assert_eq!(drawn["jobs"].as_u64(), Some(due), "every job that was due");
    assert_eq!(drawn["arrivals"].as_u64(), Some(sum("arrived")));
    assert_eq!(drawn["misses"].as_u64(), Some(sum("late")));
    let first = page.value("Math.round(talea.first)");
    let again = page.value(
        "(() => { const t = performance.now(); talea.zoom(0, 3e9); return performance.now() - t; })()",
    );
    println!(
        "first drawn {first} ms after the page was asked for; drawn again in {again} ms; {drawn}"
    );
    page.shoot("busy");

    // The wheel zooms at the pointer.
    let (x, y) = (800.0, 330.0);
    let under = "(() => { const c = document.querySelector('.chart canvas').getBoundingClientRect(); return [c.left, c.width]; })()";
    assert!(page.value(under)[1].as_f64().expect("a width") > 1_000.0);
    let before = range(&mut page);
    for _ in 0..8 {
        mouse(&mut page, "mouseWheel", x, y, &json!({ "deltaX": 0, "deltaY": -240 }));
    }
    let (fewer, zoomed) = look(&mut page);
    let after = range(&mut page);
    assert!(after.1 - after.0 < (before.1 - before.0) / 50.0, "{before:?} {after:?}");
    assert!(before.0 < after.0 && after.1 < before.1);
    assert_ne!(zoomed, whole);
    let jobs = |drawn: &Value| drawn["jobs"].as_u64().expect("jobs");
    assert!(jobs(&fewer) * 20 < jobs(&drawn) && jobs(&fewer) > 0, "{fewer}");
    page.shoot("busy-zoomed");

    // Dragging to the left shows later times.
    mouse(&mut page, "mousePressed", x, y, &json!({ "button": "left", "clickCount": 1 }));
    mouse(&mut page, "mouseMoved", x - 200.0, y, &json!({ "button": "left", "buttons": 1 }));
    mouse(&mut page, "mouseReleased", x - 200.0, y, &json!({ "button": "left", "clickCount": 1 }));
    let (_, moved) = look(&mut page);
    let dragged = range(&mut page);
    assert!(dragged.0 > after.0 && (dragged.1 - dragged.0 - (after.1 - after.0)).abs() < 2.0);
    assert_ne!(moved, zoomed);

    // A selection in the overview strip is shown in the chart.
    let strip = page.value(
        "(() => { const box = document.getElementById('overview').getBoundingClientRect(), [a, z] = talea.plot(); \
         return [box.left + a, box.top + 20, z - a]; })()",
    );
    let [left, top, width] = [0, 1, 2].map(|at| strip[at].as_f64().expect("a place"));
    mouse(
        &mut page,
        "mousePressed",
        left + width * 0.25,
        top,
        &json!({ "button": "left", "clickCount": 1 }),
    );
    mouse(
        &mut page,
        "mouseMoved",
        left + width * 0.5,
        top,
        &json!({ "button": "left", "buttons": 1 }),
    );
    mouse(
        &mut page,
        "mouseReleased",
        left + width * 0.5,
        top,
        &json!({ "button": "left", "clickCount": 1 }),
    );
    let (from, to) = range(&mut page);
    assert!((from / 3e9 - 0.25).abs() < 0.01 && (to / 3e9 - 0.5).abs() < 0.01, "{from} {to}");

    // The longest response of a task, from its row in the table.
    page.value("document.querySelector('td button').click()");
    assert!(look(&mut page).0["jobs"].as_u64() > Some(0));
    let (from, to) = range(&mut page);
    assert!(to - from < 1e7, "{from} {to}");

    // Keys: to a missed deadline, and back to the whole run.
    press(&mut page, "n");
    assert!(look(&mut page).0["misses"].as_u64() > Some(0), "a miss in view");
    page.shoot("busy-miss");
    press(&mut page, "0");
    assert_eq!(range(&mut page), before);
    assert_eq!(look(&mut page).0, drawn);
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// A job is drawn in the row of its CPU and in its task's row, in its task's colour.
#[test]
fn l22_the_pixels_are_the_schedule() {
    let scratch = Scratch::new();
    let Some(mut page) = opened(&scratch, "rich.toml", RICH) else { return };
    page.shoot("rich");
    // Each of the first segments, zoomed to three times its length: the middle of the chart has its
    // colour in these two rows only, and not before and after it.
    let seen = page.value(
        "(() => { const root = talea.data.roots[0], [, tasks, , starts, lengths] = root.segments, wrong = []; \
         const c = document.querySelector('.chart canvas'), rows = 1 + root.servers.length; \
         const swatches = [...document.querySelectorAll('td i')].map((i) => getComputedStyle(i).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)); \
         const near = (p, q) => p.every((v, i) => Math.abs(v - q[i]) < 12); \
         for (let i = 0; i < 60; i++) { \
           talea.zoom(starts[i] - lengths[i], starts[i] + 2 * lengths[i]); \
           const g = c.getContext('2d'), left = talea.plot()[0], width = talea.plot()[1] - left; \
           const at = (share, row) => [...g.getImageData(left + width * share, 24 + row * 28 + 12, 1, 1).data].slice(0, 3); \
           const mine = swatches[tasks[i]]; \
           for (const row of [0, rows + tasks[i]]) if (!near(at(0.4, row), mine)) wrong.push([i, row, at(0.4, row), mine]); \
           for (let t = 0; t < root.tasks.length; t++) if (t !== tasks[i] && near(at(0.4, rows + t), swatches[t])) wrong.push([i, t]); \
         } return wrong; })()",
    );
    assert_eq!(seen, json!([]));
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn the_page_can_be_read_in_the_dark_on_a_telephone_and_on_paper() {
    let scratch = Scratch::new();
    let Some(mut page) = opened(&scratch, "rich.toml", RICH) else { return };
    let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    page.ask("Emulation.setEmulatedMedia", &features);
    page.value("talea.zoom(3e8, 5e8)");
    page.settled();
    let ground = page.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(ground, "rgb(23, 23, 26)");
    mouse(&mut page, "mouseMoved", 700.0, 270.0, &json!({}));
    assert_eq!(
        page.value("document.getElementById('tip').hidden"),
        false,
        "the tip at the pointer is shown"
    );
    page.shoot("rich-dark");
    let screen = json!({ "width": 400, "height": 800, "deviceScaleFactor": 2, "mobile": true });
    page.ask("Emulation.setDeviceMetricsOverride", &screen);
    page.settled();
    let wide = page.value("document.documentElement.scrollWidth <= 400");
    assert_eq!(wide, true, "nothing sticks out of a small screen");
    page.shoot("rich-small");
    let paper = page.ask("Page.printToPDF", &json!({ "landscape": true }));
    let bytes = unbase64(paper["data"].as_str().expect("a document"));
    assert!(bytes.starts_with(b"%PDF"));
    if let Some(folder) = std::env::var_os("TALEA_SHOTS") {
        std::fs::write(std::path::Path::new(&folder).join("rich.pdf"), bytes).expect("written");
    }
    assert_eq!(page.value("document.documentElement.className"), "", "back from paper");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// A system file may have any name.
#[test]
fn a_hostile_name_is_text_in_a_real_browser() {
    let scratch = Scratch::new();
    let name = "<!--<script>throw 1<\\script><img src=x onerror=throw(2)>&quot;.toml";
    let Some(mut page) = opened(&scratch, name, RICH) else { return };
    assert_eq!(page.complaints(), Vec::<String>::new());
    assert_eq!(page.value("document.title"), format!("{name}, simulated"));
    assert_eq!(page.value("document.querySelectorAll('img').length"), 0);
    assert!(page.value("talea.drawn.jobs").as_u64() > Some(0));
}

/// The canvas is never higher than the window: scrolling shows other rows.
#[test]
fn hundreds_of_rows_scroll_through_the_window() {
    let scratch = Scratch::new();
    let many = "duration = \"1s\"\n\n[[scheduler]]\nname = \"all\"\npolicy = \"edf\"\ncpus = 8\n\n\
                [[task]]\nname = \"t\"\ncount = 400\nperiod = \"100ms\"\ncost = \"1ms\"\n";
    let Some(mut page) = opened(&scratch, "many.toml", many) else { return };
    let high = page.value("document.querySelector('.chart canvas').clientHeight <= innerHeight");
    assert_eq!(high, true);
    let (top, above) = look(&mut page);
    page.value("document.querySelector('.chart').scrollIntoView({ block: 'end' })");
    let (bottom, below) = look(&mut page);
    page.shoot("many");
    // The end has no rows of CPUs: every task has its ten jobs.
    let number = |drawn: &Value, what: &str| drawn[what].as_u64().expect("a number");
    assert!(number(&bottom, "segments") < number(&top, "segments"), "{top} {bottom}");
    assert!(
        number(&bottom, "jobs") >= 300 && number(&bottom, "arrivals") >= number(&bottom, "jobs"),
        "{bottom}"
    );
    assert_ne!(above, below);
    assert_eq!(page.complaints(), Vec::<String>::new());
}
