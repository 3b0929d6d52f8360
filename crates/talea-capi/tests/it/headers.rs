//! The headers compile in every standard with every warning, and agree with the library.

use crate::toolchain::{self, C11, CPP17, Language, compile, here};
use std::collections::BTreeSet;
use std::process::Command;

const STANDARDS: [Language; 10] = [
    Language::C("c89"),
    Language::C("c99"),
    C11,
    Language::C("c17"),
    Language::C("gnu89"),
    Language::C("gnu17"),
    Language::Cpp("c++11"),
    Language::Cpp("c++14"),
    CPP17,
    Language::Cpp("gnu++20"),
];

#[test]
fn r5_headers_compile_in_every_standard_with_all_warnings_as_errors() {
    for language in STANDARDS {
        for header in ["include/talea.h", "include/retif.h"] {
            let flags: &[&str] = match language {
                Language::C(_) => &["-fsyntax-only", "-Wshadow", "-Wconversion"],
                // Names of the original hide each other in C++: rtf_task_info is a structure and
                // a function.
                Language::Cpp(_) => &["-fsyntax-only", "-Wconversion", "-Wold-style-cast"],
            };
            compile(&here(header), language, flags);
        }
        compile(&here("include/lib/retif.h"), language, &["-fsyntax-only"]);
        compile(&here("tests/c/redefine.c"), language, &["-fsyntax-only"]);
    }
}

#[test]
fn y1_yasmin_h_compiles_from_c99_on_with_all_warnings_as_errors_and_names_wrong_macros() {
    let config = here("tests/c/yasmin_config.h").display().to_string();
    for language in STANDARDS {
        // Variadic macros, which the paper has, are new in C99.
        if matches!(language, Language::C("c89" | "gnu89")) {
            continue;
        }
        let more: &[&str] = match language {
            Language::C(_) => &["-Wshadow", "-Wconversion"],
            Language::Cpp(_) => &["-Wconversion", "-Wold-style-cast"],
        };
        let flags = [&["-fsyntax-only", "-include", &config], more].concat();
        compile(&here("include/yasmin.h"), language, &flags);
        compile(
            &here("include/yasmin.h"),
            language,
            &[&flags[..], &["-DYAS_PREFIXED_ONLY"]].concat(),
        );
    }
    for (flag, name) in [
        ("-DVERSION_SELECTION=ENERGIE", "VERSION_SELECTION"),
        ("-DMAPPING_SCHEME=3", "MAPPING_SCHEME"),
        ("-DPRIORITY_ASSIGNMENT=EFD", "PRIORITY_ASSIGNMENT"),
    ] {
        let source = here("include/yasmin.h");
        let mut cc = Command::new("cc");
        cc.args(["-fsyntax-only", "-std=c11", "-xc", flag, "-include", &config, "-I"])
            .arg(here("include"));
        let output = cc.arg(source).output().expect("a compiler");
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output_text.contains(&format!("define {name} as")),
            "{output_text}"
        );
    }
}

#[test]
fn r5_sizes_and_offsets_are_those_of_compiled_programs() {
    for language in [C11, CPP17] {
        let program = toolchain::program(&here("tests/c/layout.c"), language, "talea");
        toolchain::expect(Command::new(program).env("LD_LIBRARY_PATH", toolchain::folder()), 0);
    }
}

#[test]
fn retif_w17_headers_declare_what_the_library_exports_and_nothing_else_is_exported() {
    let mut declared = BTreeSet::new();
    for (header, minimum) in
        [("include/talea.h", 40), ("include/retif.h", 20), ("include/yasmin.h", 17)]
    {
        let functions = functions(&std::fs::read_to_string(here(header)).expect("a header"));
        assert!(
            functions.len() >= minimum,
            "{header}: {} functions found, at least {minimum} expected",
            functions.len()
        );
        declared.extend(functions);
    }
    let nm = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(toolchain::built_library())
        .output()
        .expect("nm is part of the compiler");
    let listing = String::from_utf8(nm.stdout).expect("text");
    let exported: BTreeSet<String> =
        listing.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    let missing: Vec<_> = declared.difference(&exported).collect();
    assert!(missing.is_empty(), "declared, but not in the library: {missing:?}");
    let undeclared: Vec<_> = exported.difference(&declared).collect();
    assert!(undeclared.is_empty(), "in the library, but not declared: {undeclared:?}");
}

#[test]
fn the_library_has_its_soname() {
    let output = Command::new("readelf")
        .arg("-d")
        .arg(toolchain::built_library())
        .output()
        .expect("readelf");
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output_text.contains("soname: [libtalea.so.0]"), "{output_text}");
}

#[test]
fn a_program_can_be_linked_with_the_static_library() {
    let library = toolchain::built_library().with_extension("a");
    let program = toolchain::folder().join("static");
    let out = program.display().to_string();
    let library = library.display().to_string();
    // The libraries of `Libs.private` in pkgconfig/talea.pc.in.
    let libraries = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
    let flags = [&["-xnone", "-o", &out, &library][..], &libraries[..]].concat();
    compile(&toolchain::example("hold_a_grant.c"), C11, &flags);
    toolchain::expect(&mut toolchain::command(&program, std::path::Path::new("/nonexistent")), 3);
    let pc = std::fs::read_to_string(here("pkgconfig/talea.pc.in")).expect("a template");
    assert!(pc.contains(&format!("Libs.private: {}\n", libraries.join(" "))), "{pc}");
}

#[test]
fn refusals_in_c_have_the_numbers_of_the_protocol() {
    let header = std::fs::read_to_string(here("include/talea.h")).expect("a header");
    let number = |name: &str| -> Option<u16> {
        let line = header.lines().find(|line| line.split_whitespace().nth(1) == Some(name))?;
        line.split_whitespace().nth(2)?.parse().ok()
    };
    let as_macro = |word: &str| word.to_uppercase().replace('-', "_");
    for code in talea_proto::Code::ALL {
        let name = format!("TALEA_E_{}", as_macro(code.stable_name()));
        assert_eq!(number(&name), Some(code as u16), "{name}");
    }
    for field in talea_proto::Field::ALL {
        let name = format!("TALEA_FIELD_{}", as_macro(field.stable_name()));
        assert_eq!(number(&name), Some(field as u16), "{name}");
    }
}

/// Returns the names of the functions that a header declares.
fn functions(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    let mut rest = header;
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        let end = rest[start..].find("*/").expect("comments end");
        rest = &rest[start + end + 2..];
    }
    code.push_str(rest);
    let code = code.replace("\\\n", "");
    let lines: Vec<&str> =
        code.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let name_of = |declaration: &str| -> Option<String> {
        let (before, _) = declaration.split_once('(')?;
        let start =
            before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
        let name = &before[start..];
        let is_ours =
            ["talea_", "rtf_", "rts_", "yas_"].iter().any(|prefix| name.starts_with(prefix));
        // An inline function needs no symbol of the library.
        let is_inline = before.contains("static inline") || before.contains("typedef");
        (is_ours && !is_inline).then(|| name.to_owned())
    };
    lines.join(" ").split(';').filter_map(name_of).collect()
}
