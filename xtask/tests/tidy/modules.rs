//! Modules in other files that a Rust file declares.
//!
//! The module reads tokens, not lines, because comments, strings and characters may contain
//! anything, and attributes and visibility may precede `mod`. The module does not expand macros. A
//! `mod name;` among the tokens of a macro counts.

/// Declaration `mod name;` with everything that determines the path of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// Value of `#[path = "…"]`.
    pub(crate) path: Option<String>,
    /// Enclosing inline modules, outermost first. Each element is the value of the module's `path`,
    /// or the module's name.
    pub(crate) within: Vec<String>,
}

/// Returns all declarations, in order.
pub(crate) fn declared(text: &str) -> Vec<Declared> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    // One entry per open brace: its inline module, if it has one.
    let mut open: Vec<Option<String>> = Vec::new();
    let mut path = None;
    let mut i = 0;
    while let Some(token) = tokens.get(i) {
        match (token, tokens.get(i + 1), tokens.get(i + 2)) {
            (Token::Mark('#'), _, _) => {
                let end = attribute(&tokens, i);
                path = path_in(&tokens[i..end]).or(path);
                i = end;
                continue;
            }
            (Token::Word(word), Some(Token::Word(name)), Some(Token::Mark(mark @ (';' | '{'))))
                if word == "mod" =>
            {
                let path = path.take();
                if *mark == ';' {
                    found.push(Declared {
                        name: name.clone(),
                        path,
                        within: open.iter().flatten().cloned().collect(),
                    });
                } else {
                    open.push(Some(path.unwrap_or_else(|| name.clone())));
                }
                i += 3;
                continue;
            }
            (Token::Mark('{'), _, _) => open.push(None),
            (Token::Mark('}'), _, _) => drop(open.pop()),
            _ => {}
        }
        // Only a visibility stands between an attribute and its module: `pub`, `pub(in a::b)`.
        if matches!(token, Token::Mark(';' | '{' | '}')) {
            path = None;
        }
        i += 1;
    }
    found
}

/// Token of a Rust file. Comments are no tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Word(String),
    Text(String),
    Mark(char),
}

/// Returns the index after the attribute that begins at `from`, or the index of the next token if
/// there is no attribute.
pub(crate) fn attribute(tokens: &[Token], from: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(from + 1) {
        match token {
            Token::Mark('[') => depth += 1,
            Token::Mark(']') => depth -= 1,
            // An inner attribute.
            Token::Mark('!') if depth == 0 => continue,
            _ if depth == 0 => return from + 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Returns the value of `path` in an attribute, also within `cfg_attr`.
fn path_in(attribute: &[Token]) -> Option<String> {
    attribute.windows(3).find_map(|three| match three {
        [Token::Word(word), Token::Mark('='), Token::Text(path)] if word == "path" => {
            Some(path.clone())
        }
        _ => None,
    })
}

/// Returns the tokens of a file.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '/' if rest.starts_with("//") => (None, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (None, comment(rest)),
            '"' => {
                let length = quoted(rest, '"');
                (Some(Token::Text(rest[1..length].trim_end_matches('"').to_owned())), length)
            }
            '\'' => (None, character(rest)),
            _ if first.is_alphanumeric() || first == '_' => {
                let length =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let word = &rest[..length];
                match raw(word, &rest[length..]) {
                    Some(more) => (Some(Token::Text(String::new())), length + more),
                    // `r#type` is the word `type`.
                    None if word == "r" && rest[length..].starts_with('#') => (None, length + 1),
                    None => (Some(Token::Word(word.to_owned())), length),
                }
            }
            _ if first.is_whitespace() => (None, first.len_utf8()),
            _ => (Some(Token::Mark(first)), first.len_utf8()),
        };
        tokens.extend(token);
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of the block comment at the start of `text`, in bytes. Block comments nest.
fn comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the length of a text between two `mark`s, including the marks, in bytes.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character, or of the mark that begins a lifetime.
fn character(text: &str) -> usize {
    let mut next = text.chars().skip(1);
    match (next.next(), next.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 1,
    }
}

/// Returns the length of the raw string that `prefix` begins, without `prefix`, in bytes. `None` if
/// there is no raw string.
fn raw(prefix: &str, rest: &str) -> Option<usize> {
    if !["r", "br", "cr"].contains(&prefix) {
        return None;
    }
    let hashes = rest.bytes().take_while(|&byte| byte == b'#').count();
    let body = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(body.find(&end).map_or(rest.len(), |at| hashes + 1 + at + end.len()))
}

/// Returns the declared names, with their inline modules and `path`.
fn names(text: &str) -> Vec<String> {
    declared(text)
        .into_iter()
        .map(|found| {
            let mut name = found.within.join("::");
            name.push_str(if name.is_empty() { "" } else { "::" });
            name + &found.name + &found.path.map(|path| format!("={path}")).unwrap_or_default()
        })
        .collect()
}

#[test]
fn declarations_are_found_among_attributes_and_visibilities() {
    assert_eq!(names("mod a; pub mod b;\npub(in crate::x) mod c ;"), ["a", "b", "c"]);
    assert_eq!(
        names("#![forbid(unsafe_code)]\n#[cfg(any(test, feature = \"sim\"))]\n#[allow(x)] mod a;"),
        ["a"]
    );
    assert_eq!(
        names("#[path = \"../x.rs\"]\n#[cfg(test)]\npub mod a;\nmod b;"),
        ["a=../x.rs", "b"]
    );
    assert_eq!(names("#[cfg_attr(unix, path = \"unix.rs\")] mod os;"), ["os=unix.rs"]);
    assert_eq!(
        names("mod r#type; mod inner { fn f() { if x {} } mod deep; } mod after;"),
        ["type", "inner::deep", "after"]
    );
    assert_eq!(names("#[path = \"dir\"] mod a { mod b; }"), ["dir::b"]);
    assert_eq!(names("#[path = \"x.rs\"] fn f() {} mod a;"), ["a"]);
}

#[test]
fn text_that_resembles_a_declaration_is_none() {
    assert!(names("// mod a;\n//! mod b;\n/* mod c; /* mod d; */ mod e; */").is_empty());
    assert!(
        names(r##"let s = "mod a; \" mod b;"; let r = r#"" mod c; "#; let b = b"mod d;";"##)
            .is_empty()
    );
    assert!(names("mod inline {} use a::mod_b; let modern = 1;").is_empty());
    assert!(names("macro_rules! m { ($name:ident) => { mod $name; } }").is_empty());
}

#[test]
fn quotes_and_lifetimes_hide_no_declaration() {
    assert_eq!(names("fn f<'a>(x: &'a str) -> char { '\"' } mod a;"), ["a"]);
    assert_eq!(names("const C: [char; 4] = ['\\'', '{', '\\u{7b}', '/']; mod a;"), ["a"]);
    assert_eq!(
        names("let x = b'{'; let y = '\u{e9}'; 'outer: loop { break 'outer; } mod a;"),
        ["a"]
    );
    assert_eq!(names("let x = 1.0; let s = c\"{\"; let r = br##\"{\"#\"##; mod a;"), ["a"]);
}
