//! Names that contain markup, and budgets with every kind of corner.

use super::outline::{Outline, ServerLine, SlotLine, SlotTable, TaskLine};
use super::*;
use talea_core::engine::NodeId;

const HOSTILE: [&str; 5] = [
    "</script><script>boom()</script>",
    "<!--<script>",
    "a & b <i>\"'`",
    "]]>\u{1}\u{0}",
    "<\\/script",
];

/// Builds the outline of one CPU, a server and a slot, all with this name.
fn outline(name: &str) -> Outline {
    let task = TaskLine { name: name.into(), period_ns: 1, deadline_ns: 1, servers: vec![0] };
    let server = ServerLine { node: NodeId(0), name: name.into(), budget_ns: 1, period_ns: 1 };
    let slot = SlotLine { start_ns: 0, end_ns: 1, owner: name.into(), tasks: vec![0] };
    let table = SlotTable { name: name.into(), cpu: None, frame_ns: 10, slots: vec![slot] };
    Outline {
        in_chain: Vec::new(),
        logical: Vec::new(),
        name: name.into(),
        cpus: 1,
        tasks: vec![task],
        servers: vec![server],
        tables: vec![table],
        sinks: Vec::new(),
        has_interference: false,
    }
}

fn picture<'a>(name: &str, outline: &'a Outline) -> RunPage<'a> {
    let drawn = DrawnRoot {
        outline,
        schedule: Schedule::new(1, 10),
        budgets: vec![[vec![0, 5], vec![1, 0]]],
        unfinished: Vec::new(),
        sums: vec![TaskTotals::default()],
    };
    let chain = DrawnChain {
        name: name.into(),
        kind: "age",
        start_ns: 0,
        jobs: [vec![0], vec![0], vec![0], vec![0], vec![5]],
    };
    RunPage {
        title: name.into(),
        seed: 1,
        roots: vec![drawn],
        chains: vec![chain],
        duration_ns: 100,
        head: Vec::new(),
    }
}

#[test]
fn a_hostile_name_stays_a_name_in_the_page() {
    for name in HOSTILE {
        let outline = outline(name);
        let page = html(&picture(name, &outline)).expect("a page");
        let clean = html(&picture("x", &self::outline("x"))).expect("a page");
        for markup in ["<script", "</script", "<!--", "<i>"] {
            let count = |page: &str| page.matches(markup).count();
            assert_eq!(count(&page), count(&clean), "{name:?} adds {markup}");
        }
        let json = page
            .split_once("application/json\">")
            .expect("data")
            .1
            .split_once("</script>")
            .expect("end")
            .0;
        let data: serde_json::Value = serde_json::from_str(json).expect("JSON as it stands");
        assert_eq!(data["title"], name);
        assert_eq!(data["chains"][0]["name"], name);
        assert_eq!(data["roots"][0]["tasks"][0]["name"], name);
        assert_eq!(data["roots"][0]["tables"][0]["slots"][0]["owner"], name);
    }
}

#[test]
fn a_hostile_name_stays_a_name_in_the_svg() {
    for name in HOSTILE {
        let outline = outline(name);
        let text = svg(&picture(name, &outline), 100);
        let clean = svg(&picture("x", &self::outline("x")), 100);
        let count = |text: &str| (text.matches('<').count(), text.matches('>').count());
        assert_eq!(count(&text), count(&clean), "{name:?}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{name:?}");
        let entities = text.matches('&').count();
        let known = ["&amp;", "&lt;", "&gt;"].map(|entity| text.matches(entity).count());
        assert_eq!(entities, known.iter().sum::<usize>(), "{name:?}");
    }
}

#[test]
fn what_is_not_drawn_is_said() {
    let outline = outline("x");
    let mut picture = picture("x", &outline);
    assert!(!svg(&picture, 100).contains("drawn up to"));
    picture.roots[0].schedule.cut = Some(talea_core::Time::from_ns(40));
    assert!(svg(&picture, 100).contains("x; drawn up to 40ns</text>"), "{}", svg(&picture, 100));
    assert!(!svg(&picture, 30).contains("drawn up to"), "all that it shows is there");
    assert!(html(&picture).expect("a page").contains("\"cut\":40"));
}
