//! Recognition of forms.

use super::form::{Content, recognise};

#[test]
fn every_form_is_recognised_by_its_content() {
    for (text, content) in [
        ("<simulation name=\"a\">\n</simulation>\n", Content::Sf3p),
        ("\u{feff}<?xml version=\"1.0\"?>\n<!-- x > y -->\n<simulation/>", Content::Sf3p),
        ("{ \"tasks\": {} }", Content::RtApp),
        ("/* load */ // of two threads\n{\n}", Content::RtApp),
        ("# plugins\nEDF EDF.so 100-100 0\n", Content::RetifPlugins),
        ("RM 50-99 1,2\n", Content::RetifPlugins),
        ("950000\n!PLUGINS\n", Content::RetifPlugins),
        ("---\nsystem:\n  x: 1\nplugins:\n  - plugin: EDF\n", Content::RetifPlugins),
        ("root EDF max_utilization 0.5\n- - max_priority 50\n", Content::RetifRules),
        ("root EDF max_utilization 0.5\nEDF EDF.so 100-100 0\n", Content::RetifPlugins),
    ] {
        assert_eq!(recognise(text), Ok(content), "{text}");
    }
}

#[test]
fn an_unknown_form_has_its_reason() {
    for (text, part) in [
        ("", "is empty"),
        (" \n", "is empty"),
        ("<MODULE Name=\"a\"/>", "root element <MODULE>"),
        ("<!-- nothing else -->", "no root element"),
        ("duration = \"1s\"\n", "TOML"),
        ("[[task]]\ncpus = 2\n", "TOML"),
        ("tasks:\n  - a\n", "YAML without a section `plugins`"),
        ("once upon a time\n", "unknown"),
        ("/* without an end", "unknown"),
    ] {
        let why = recognise(text).expect_err(text);
        assert!(why.contains(part), "{text}: {why}");
    }
}
