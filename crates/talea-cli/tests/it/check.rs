//! `talea check`, and imports of ReTiF's files; the table of malformed files is in `talea-config`.

use crate::harness::{Scratch, run, snapshot};

const SOUND: &str = "[[plugin]]\nname = \"edf\"\nkind = \"edf\"\ncpus = \"0-1\"\n\n[[plugin]]\nname = \"background\"\n\
                     kind = \"fp\"\ncpus = \"0-1\"\npriorities = \"1-49\"\n\n[[rule]]\ndomain = \"root\"\n\
                     max_utilization = 0.5\n";

#[test]
fn a_sound_configuration_is_exit_code_0() {
    let scratch = Scratch::new();
    scratch.file("talead.toml", SOUND);
    let ended = run(&scratch, &["check", "talead.toml", "--cpus", "2"]);
    snapshot("check-sound", &ended.transcript());
    assert_eq!(ended.code, Some(0));
}

#[test]
fn a_malformed_configuration_is_exit_code_2_with_its_place_and_remedy() {
    let scratch = Scratch::new();
    scratch.file(
        "talead.toml",
        &SOUND.replace("cpus = \"0-1\"\npriorities", "cpus = \"0-9\"\nprioritis"),
    );
    let ended = run(&scratch, &["check", "talead.toml", "--cpus", "2"]);
    snapshot("check-malformed", &ended.transcript());
    assert_eq!(ended.code, Some(2));
}

#[test]
fn r19_a_file_can_be_checked_for_another_machine() {
    let scratch = Scratch::new();
    scratch.file("talead.toml", &SOUND.replace("0-1", "0-19"));
    assert_eq!(run(&scratch, &["check", "talead.toml", "--cpus", "2"]).code, Some(2));
    assert_eq!(run(&scratch, &["check", "talead.toml", "--cpus", "20"]).code, Some(0));
}

#[test]
fn check_as_json_has_every_complaint_with_its_place() {
    let scratch = Scratch::new();
    scratch.file("talead.toml", &SOUND.replace("\"fp\"", "\"fpp\""));
    let ended = run(&scratch, &["check", "talead.toml", "--cpus", "2", "--json"]);
    assert_eq!(ended.code, Some(2));
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    assert_eq!((answer["schema"].as_u64(), answer["ok"].as_bool()), (Some(1), Some(false)));
    let first = &answer["diagnostics"][0];
    assert_eq!((first["severity"].as_str(), first["line"].as_u64()), (Some("error"), Some(8)));
    assert_eq!(first["file"], "talead.toml");
    assert!(first["remedy"].as_str().is_some_and(|remedy| remedy.contains("fp")), "{first}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_wrong_argument() {
    let scratch = Scratch::new();
    let ended = run(&scratch, &["check", "nothing.toml"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("nothing.toml"), "{}", ended.err);
}

#[test]
fn r27_the_papers_files_become_a_valid_configuration() {
    let scratch = Scratch::new();
    scratch.file("retif.conf", "EDF EDF.so 100-100 0\nRM RM.so 50-99 1,2\nRR RR.so 1-50 1,2\n");
    scratch.file("rules", "root EDF max_utilization 0.5\n- - max_priority 50\n");
    let ended = run(&scratch, &["import", "retif.conf", "rules"]);
    snapshot("import-retif", &ended.transcript());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    scratch.file("talead.toml", &ended.out);
    let checked = run(&scratch, &["check", "talead.toml", "--cpus", "3"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
}

#[test]
fn errors_of_an_imported_file_do_not_go_to_standard_output() {
    let scratch = Scratch::new();
    scratch.file("retif.conf", "EDF 100-100\n");
    let ended = run(&scratch, &["import", "retif.conf"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("retif.conf:1:"), "{}", ended.err);
}

#[test]
fn a_rule_file_without_plugins_reports_the_missing_plugins() {
    let scratch = Scratch::new();
    scratch.file("rules", "root EDF max_utilization 0.5\n");
    let ended = run(&scratch, &["import", "rules"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("declare it, or write - for any"), "{}", ended.err);
    assert!(!ended.err.contains("one of ,"), "{}", ended.err);
}

#[test]
fn the_rules_may_be_named_before_the_plugins() {
    let scratch = Scratch::new();
    scratch.file("retif.conf", "EDF EDF.so 100-100 0\nRM RM.so 50-99 1,2\n");
    scratch.file("rules", "root EDF max_utilization 0.5\n");
    let usual = run(&scratch, &["import", "retif.conf", "rules"]);
    let reversed = run(&scratch, &["import", "rules", "retif.conf"]);
    assert_eq!((usual.code, reversed.code), (Some(0), Some(0)), "{}{}", usual.err, reversed.err);
    assert_eq!(usual.out, reversed.out);
}
