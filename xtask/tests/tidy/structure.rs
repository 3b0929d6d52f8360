//! Size of structs, and import circles between the files of a crate.
//!
//! *Circle*: a set of files in which each file imports from each other one, directly or through
//! others of the set. A file of a circle cannot be understood, moved or tested alone.
//!
//! *Import*: a path in a file, in `use` or in code, that names an item of another file. A re-export
//! (`pub use`) leads to the file that defines the item, and is itself an import only if its file
//! uses the name. A path to a module counts by the items that the file names below the module.
//! Method calls, macros and test code do not count.
//!
//! The tables list the present exceptions. An entry may only shrink: a larger circle or struct is a
//! finding, and so is an entry that is larger than the measured circle or struct.

use crate::modules::{Token, attribute, tokens};
use crate::{crates, none, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Maximum number of fields of a struct without a reason.
const MAX_FIELDS: usize = 15;

/// Structs with more fields: crate, struct, number of fields, reason.
#[rustfmt::skip]
const LARGE_STRUCTS: &[(&str, &str, usize, &str)] = &[
    ("talea-broker", "Broker", 37, "owner of the whole state that an input may change, most of it in types of its own"),
    ("talea-broker", "Simulation", 29, "environment of one broker: its kernel, clients, plugins, files and faults"),
    ("talea-capi", "TaleaAppReport", 16, "C ABI: fields of the published structure"),
    ("talea-capi", "TaleaInfo", 21, "C ABI: fields of the published structure"),
    ("talea-daemon", "Daemon", 27, "owner of the parts of the event loop, each with a type of its own"),
    ("talea-os", "Attr", 19, "layout of the kernel's perf_event_attr"),
];

/// Circles: crate, files as module paths (`-` is the root of the crate), reason.
#[rustfmt::skip]
const CIRCLES: &[(&str, &[&str], &str)] = &[
    (
        "talea-broker",
        &["plugins", "plugins::edf", "plugins::foreign", "plugins::fp", "plugins::rm"],
        "the admission test of a plugin asks the plugins of the same closed list that it outranks",
    ),
];

#[test]
fn structs_have_few_fields_or_a_reason() {
    let mut findings = Vec::new();
    let mut large = BTreeSet::new();
    for name in crates() {
        for tokens in files_of(&name).into_values() {
            for (of, fields) in structs(&tokens).into_iter().filter(|found| found.1 > MAX_FIELDS) {
                let listed = LARGE_STRUCTS.iter().find(|row| row.0 == name && row.1 == of);
                if listed.is_none_or(|row| row.2 != fields) {
                    let listed = listed.map_or(MAX_FIELDS, |row| row.2);
                    findings.push(format!("{name}: {of} has {fields} fields, allowed: {listed}"));
                }
                large.insert((name.clone(), of));
            }
        }
    }
    for row in LARGE_STRUCTS {
        if !large.contains(&(row.0.to_owned(), row.1.to_owned())) {
            findings.push(format!("{}: {} is no longer large: remove its entry", row.0, row.1));
        }
    }
    none(&findings);
}

#[test]
fn files_import_each_other_in_no_circle_or_with_a_reason() {
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for name in crates() {
        let edges = imports(&files_of(&name));
        for circle in circles(&edges) {
            let listed = CIRCLES.iter().position(|(of, files, _)| {
                *of == name && circle.iter().map(String::as_str).eq(files.iter().copied())
            });
            match listed {
                Some(at) => drop(seen.insert(at)),
                None => findings.push(format!("{name}: {circle:?}:{}", within(&edges, &circle))),
            }
        }
    }
    for (at, (name, files, _)) in CIRCLES.iter().enumerate() {
        if !seen.contains(&at) {
            findings.push(format!("{name}: no circle {files:?}: remove or shrink its entry"));
        }
    }
    none(&findings);
}

/// Path of a module within its crate.
type Module = Vec<String>;

/// Returns the tokens of each source file of a crate, without test code.
fn files_of(name: &str) -> BTreeMap<Module, Vec<Token>> {
    let source = root().join("crates").join(name).join("src");
    let has_library = source.join("lib.rs").is_file();
    let mut files = BTreeMap::new();
    let mut open = vec![source.clone()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let within = path.strip_prefix(&source).expect("below the source");
            let Some(module) = module_of(within, has_library) else { continue };
            if path.is_dir() {
                open.push(path);
            } else {
                let text = std::fs::read_to_string(&path).expect("a readable file");
                files.insert(module, without_tests(&tokens(&text)));
            }
        }
    }
    files
}

/// Returns the module of a file or folder; `None` for other programs, test code, and files that are
/// no Rust.
fn module_of(path: &Path, has_library: bool) -> Option<Module> {
    let mut module: Module =
        path.iter().map(|part| part.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let last = module.pop()?;
    let is_other = |part: &str| part == "tests" || part == "bin";
    match last.strip_suffix(".rs") {
        None if last.contains('.') => return None,
        None => module.push(last),
        Some("mod" | "lib") => {}
        Some("main") if !has_library => {}
        Some("main") => return None,
        Some(own) => module.push(own.to_owned()),
    }
    (!module.iter().any(|part| is_other(part))).then_some(module)
}

fn is_word(token: Option<&Token>, word: &str) -> bool {
    matches!(token, Some(Token::Word(found)) if found == word)
}

fn is_mark(token: Option<&Token>, mark: char) -> bool {
    token == Some(&Token::Mark(mark))
}

/// Returns the tokens without the items under `#[cfg(test)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if !is_mark(tokens.get(i), '#') {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        let end = attribute(tokens, i);
        let is_test = is_word(tokens.get(i + 2), "cfg")
            && is_word(tokens.get(i + 4), "test")
            && is_mark(tokens.get(i + 5), ')');
        i = if is_test { item_end(tokens, end) } else { end.max(i + 1) };
    }
    kept
}

/// Returns the index after the item that begins at `from`: after `;` or after its braces.
fn item_end(tokens: &[Token], from: usize) -> usize {
    let mut depth = 0_i32;
    for (i, token) in tokens.iter().enumerate().skip(from) {
        match token {
            Token::Mark('{' | '(' | '[') => depth += 1,
            Token::Mark(mark @ ('}' | ')' | ']')) => {
                depth -= 1;
                if depth == 0 && *mark == '}' {
                    return i + 1;
                }
            }
            Token::Mark(';') if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the structs with named fields, each with its number of fields.
fn structs(tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let (true, Some(Token::Word(name))) = (is_word(Some(token), "struct"), tokens.get(i + 1))
        else {
            continue;
        };
        let body = tokens[i..].iter().position(|token| matches!(token, Token::Mark('{' | ';')));
        let Some(body) = body.map(|at| i + at).filter(|&at| is_mark(tokens.get(at), '{')) else {
            continue;
        };
        let (mut depth, mut fields) = (0, 0);
        for at in body..tokens.len() {
            match &tokens[at] {
                Token::Mark('{' | '(' | '[') => depth += 1,
                Token::Mark('}' | ')' | ']') => depth -= 1,
                Token::Mark(':') if depth == 1 => {
                    let is_path =
                        is_mark(tokens.get(at - 1), ':') || is_mark(tokens.get(at + 1), ':');
                    fields += usize::from(!is_path);
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        found.push((name.clone(), fields));
    }
    found
}

/// Imports and paths of one file.
#[derive(Default)]
struct Uses {
    /// `use` declarations: the path, the name in the file, and whether it is a re-export. The name
    /// of an import of all items is `*`.
    imports: Vec<(Module, String, bool)>,
    /// Paths in code with two or more parts.
    paths: Vec<Module>,
    words: BTreeSet<String>,
}

/// Returns what a file uses. A path below an inline module keeps the module's name after `self` or
/// `super`, so that it resolves to the file.
fn uses(tokens: &[Token]) -> Uses {
    let mut uses = Uses::default();
    let mut i = 0;
    // One entry per open brace: whether it belongs to an inline module.
    let mut open: Vec<bool> = Vec::new();
    while i < tokens.len() {
        let inline = open.iter().filter(|&&is_module| is_module).count();
        match &tokens[i] {
            Token::Mark('{') => {
                open.push(i >= 2 && is_word(tokens.get(i - 2), "mod"));
                i += 1;
            }
            Token::Mark('}') => {
                open.pop();
                i += 1;
            }
            Token::Word(word) if word == "use" => {
                let is_public =
                    i > 0 && (is_word(tokens.get(i - 1), "pub") || is_mark(tokens.get(i - 1), ')'));
                let mut paths = Vec::new();
                i = tree(tokens, i + 1, &Module::new(), &mut paths);
                uses.imports.extend(
                    paths
                        .into_iter()
                        .map(|(path, name)| (out_of_inline(path, inline), name, is_public)),
                );
            }
            Token::Word(first) => {
                let is_declared = i > 0 && is_word(tokens.get(i - 1), "mod");
                let mut path = vec![first.clone()];
                i += 1;
                while let (true, true, Some(Token::Word(next))) = (
                    is_mark(tokens.get(i), ':'),
                    is_mark(tokens.get(i + 1), ':'),
                    tokens.get(i + 2),
                ) {
                    path.push(next.clone());
                    i += 3;
                }
                // A declaration of a module is no use of its name.
                if !is_declared {
                    uses.words.insert(first.clone());
                }
                if path.len() > 1 {
                    uses.paths.push(out_of_inline(path, inline));
                }
            }
            _ => i += 1,
        }
    }
    uses
}

/// Removes the `super`s that lead out of inline modules.
fn out_of_inline(path: Module, inline: usize) -> Module {
    let supers = path.iter().take_while(|part| *part == "super").count();
    if inline == 0 || supers == 0 {
        return path;
    }
    let rest = path[supers.min(inline)..].to_vec();
    if supers > inline { rest } else { [vec!["self".to_owned()], rest].concat() }
}

/// Reads one tree of a `use` declaration from `i` on. Returns the index after the tree.
fn tree(tokens: &[Token], mut i: usize, prefix: &Module, out: &mut Vec<(Module, String)>) -> usize {
    let mut path = prefix.clone();
    let mut name = None;
    while let Some(token) = tokens.get(i) {
        match token {
            Token::Word(word) if word == "as" => {
                if let Some(Token::Word(alias)) = tokens.get(i + 1) {
                    name = Some(alias.clone());
                }
                i += 1;
            }
            Token::Word(word) if word == "self" && !path.is_empty() => {}
            Token::Word(word) => path.push(word.clone()),
            Token::Mark('*') => name = Some("*".to_owned()),
            Token::Mark('{') => {
                i += 1;
                while !is_mark(tokens.get(i), '}') && i < tokens.len() {
                    i = tree(tokens, i, &path, out);
                    i += usize::from(is_mark(tokens.get(i), ','));
                }
                return i + 1;
            }
            Token::Mark(',' | '}' | ';') => break,
            _ => {}
        }
        i += 1;
    }
    if let Some(last) = path.last().cloned() {
        out.push((path, name.unwrap_or(last)));
    }
    i
}

/// Files of a crate with what they use.
struct Crate<'t> {
    files: &'t BTreeMap<Module, Vec<Token>>,
    uses: BTreeMap<&'t Module, Uses>,
}

/// Target of a path: a file, and whether the path names the file itself instead of an item.
type Target = (Module, bool);

impl Crate<'_> {
    /// Returns the file that defines the item at the end of `path`, which is written in file
    /// `from`; `None` for items of other crates.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let mut at = from.clone();
        let supers = path.iter().take_while(|part| *part == "super").count();
        let absolute: Module = match first.as_str() {
            "crate" => rest.to_vec(),
            "self" => [at, rest.to_vec()].concat(),
            "super" => {
                at.truncate(at.len().checked_sub(supers)?);
                [at, path[supers..].to_vec()].concat()
            }
            _ if self.files.contains_key(&[at.clone(), vec![first.clone()]].concat()) => {
                [at, path.to_vec()].concat()
            }
            _ => {
                let imports = &self.uses.get(from)?.imports;
                let (import, ..) = imports.iter().find(|(import, name, _)| {
                    name == first && import.len() + path.len() > 2 && import != path
                })?;
                if depth == 0 {
                    return None;
                }
                return self.resolve(from, &[import.as_slice(), rest].concat(), depth - 1);
            }
        };
        self.define(&absolute, depth)
    }

    /// Returns the file that defines the item at a path from the root of the crate.
    fn define(&self, path: &[String], depth: usize) -> Option<Target> {
        let length = (0..=path.len()).rev().find(|&n| self.files.contains_key(&path[..n]))?;
        let (file, rest) = (path[..length].to_vec(), &path[length..]);
        let Some((name, more)) = rest.split_first() else { return Some((file, true)) };
        let uses = &self.uses[&file];
        if depth > 0 {
            let named = uses.imports.iter().find(|(_, alias, _)| alias == name);
            if let Some((import, ..)) = named {
                let full = [import.as_slice(), more].concat();
                if let Some(found) = self.resolve(&file, &full, depth - 1) {
                    return Some(found);
                }
            }
            for (import, ..) in uses.imports.iter().filter(|(_, alias, _)| alias == "*") {
                if let Some((target, true)) = self.resolve(&file, import, depth - 1)
                    && target != file
                    && defines(&self.files[&target], name)
                {
                    return Some((target, false));
                }
            }
        }
        Some((file, false))
    }
}

/// Whether a file defines an item of this name.
fn defines(tokens: &[Token], name: &str) -> bool {
    const KINDS: [&str; 8] = ["struct", "enum", "fn", "trait", "type", "const", "static", "union"];
    tokens
        .windows(2)
        .any(|two| is_word(two.get(1), name) && KINDS.iter().any(|kind| is_word(two.first(), kind)))
}

/// Returns the files from which each file imports.
fn imports(files: &BTreeMap<Module, Vec<Token>>) -> BTreeMap<Module, BTreeSet<Module>> {
    const DEPTH: usize = 8;
    let uses = files.iter().map(|(module, tokens)| (module, uses(tokens))).collect();
    let of = Crate { files, uses };
    let mut edges = BTreeMap::new();
    for (file, uses) in &of.uses {
        let mut targets = BTreeSet::new();
        let imported = uses
            .imports
            .iter()
            .filter(|(_, name, is_public)| !is_public || uses.words.contains(name));
        for path in imported.map(|(path, ..)| path) {
            if let Some((target, false)) = of.resolve(file, path, DEPTH) {
                targets.insert(target);
            }
        }
        for path in &uses.paths {
            if let Some((target, false)) = of.resolve(file, path, DEPTH) {
                targets.insert(target);
            }
        }
        targets.remove(*file);
        edges.insert((*file).clone(), targets);
    }
    edges
}

/// Returns the name of a file in the table.
fn name_of(file: &Module) -> String {
    if file.is_empty() { "-".to_owned() } else { file.join("::") }
}

/// Returns the circles, each as sorted names of files.
fn circles(edges: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<String>> {
    let reach = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&Module> = edges[from].iter().collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(&edges[next]);
            }
        }
        reached
    };
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        edges.keys().map(|file| (file, reach(file))).collect();
    let mut found = BTreeSet::new();
    for (file, targets) in &reached {
        let members = targets
            .iter()
            .filter(|other| reached[**other].contains(file))
            .map(|file| name_of(file));
        let circle: Vec<String> = members.collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Returns the imports between the files of a circle, one file per line.
fn within(edges: &BTreeMap<Module, BTreeSet<Module>>, circle: &[String]) -> String {
    let line = |(file, targets): (&Module, &BTreeSet<Module>)| {
        let targets: Vec<String> =
            targets.iter().map(name_of).filter(|target| circle.contains(target)).collect();
        let file = name_of(file);
        circle.contains(&file).then(|| format!("\n    {file} imports {targets:?}"))
    };
    edges.iter().filter_map(line).collect()
}

/// Returns the circles of a crate with these files.
#[cfg(test)]
fn circles_in(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let files = files.iter().map(|(path, text)| {
        (module_of(Path::new(path), true).expect("a module"), without_tests(&tokens(text)))
    });
    circles(&imports(&files.collect()))
}

#[test]
fn an_import_leads_to_the_file_that_defines_the_item() {
    let facade = ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*;");
    let b = ("b.rs", "use crate::A; pub struct B(A);");
    assert!(circles_in(&[facade, ("a.rs", "pub struct A;"), b]).is_empty());
    let circle = [vec!["a".to_owned(), "b".to_owned()]];
    for a in [
        "use crate::B; pub struct A(B);",
        "pub struct A(super::b::B);",
        "use super::b; pub struct A(b::B);",
        "pub struct A; mod inner { use super::super::b::{B as C}; }",
    ] {
        assert_eq!(circles_in(&[facade, ("a.rs", a), b]), circle, "{a}");
    }
}

#[test]
fn a_parent_and_its_part_are_a_circle_only_if_both_use_items() {
    let part = ("a/part.rs", "use super::Whole; impl Whole { fn f() {} } pub struct Part;");
    let lib = ("lib.rs", "mod a;");
    let whole = |text| circles_in(&[lib, ("a/mod.rs", text), part]);
    assert!(whole("mod part; pub use part::Part; pub struct Whole;").is_empty());
    assert_eq!(whole("mod part; pub use part::Part; pub struct Whole(Part);").len(), 1);
    assert_eq!(whole("mod part; pub struct Whole; fn f() { part::Part; }").len(), 1);
    assert!(
        whole("mod part; pub struct Whole; #[cfg(test)] mod t { use super::part::Part; }")
            .is_empty()
    );
}

#[test]
fn fields_are_counted_without_the_paths_of_their_types() {
    let text = "pub struct A<T: B> { #[x(y: z)] pub(crate) a: std::vec::Vec<(u8, C)>, b: T }";
    let text = format!("{text} struct D(u8, u8); struct E; enum F {{ G {{ h: u8 }} }}");
    assert_eq!(structs(&without_tests(&tokens(&text))), [("A".to_owned(), 2)]);
}
