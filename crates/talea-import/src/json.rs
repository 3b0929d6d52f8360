//! JSON as rt-app accepts it: objects keep their order and may repeat a key. As in rt-app's own
//! `workgen`, comments, superfluous commas and keys without a value are valid. Every value has its
//! position.
//!
//! Invariant: nesting is limited to [`DEPTH_MAX`], and the text is read once.

use std::borrow::Cow;
use std::ops::Range;
use talea_config::diagnostic::{harmless, quoted};
use talea_config::source::{Words, words};

/// Maximum nesting of objects and lists.
const DEPTH_MAX: usize = 64;

/// Value with its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Json<'t> {
    pub(crate) value: Value<'t>,
    pub(crate) at: Range<usize>,
}

/// A JSON value with its text positions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'t> {
    /// `null`, or a missing value.
    Null,
    Bool(bool),
    /// A number, as written in the text.
    Number(&'t str),
    Text(Cow<'t, str>),
    List(Vec<Json<'t>>),
    Object(Vec<Member<'t>>),
}

/// Key with its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member<'t> {
    pub(crate) key: Cow<'t, str>,
    pub(crate) key_at: Range<usize>,
    pub(crate) value: Json<'t>,
}

impl Value<'_> {
    /// Returns the name of the value's kind in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

/// Parses a JSON text.
///
/// # Errors
/// The first position at which the text is no JSON.
pub(crate) fn parse(text: &str) -> Result<Json<'_>, (Range<usize>, Words)> {
    let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut reader = Reader { text, at: start, depth: 0 };
    let value = reader.value()?;
    reader.blanks()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => {
            reader.fail("something follows the end", "leave it out, or put it into the object")
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

type Found<T> = Result<T, (Range<usize>, Words)>;

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn fail<T>(&self, what: &str, remedy: &str) -> Found<T> {
        let end = self.at + self.peek().map_or(0, char::len_utf8);
        let found = match self.peek() {
            None => "the text ends here".to_owned(),
            Some(c) => format!("here stands {}", quoted(&harmless(c).to_string())),
        };
        Err((self.at..end, words(format!("this is not JSON: {what}"), found, remedy)))
    }

    /// Skips blanks and comments.
    fn blanks(&mut self) -> Found<()> {
        loop {
            let rest = self.rest();
            let text = rest.trim_start();
            self.at += rest.len() - text.len();
            if text.starts_with("//") {
                self.at += text.find('\n').unwrap_or(text.len());
            } else if let Some(comment) = text.strip_prefix("/*") {
                // Behind its beginning: `/*/` is no whole comment.
                let Some(end) = comment.find("*/") else {
                    return self.fail("this comment does not end", "write */ where it ends");
                };
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    /// Skips the next character if it is `c`. Returns whether it was.
    fn passes(&mut self, c: char) -> bool {
        let passes = self.peek() == Some(c);
        self.at += if passes { c.len_utf8() } else { 0 };
        passes
    }

    fn value(&mut self) -> Found<Json<'t>> {
        self.blanks()?;
        let start = self.at;
        let value = match self.peek() {
            Some('{') => self.nested(Self::object)?,
            Some('[') => self.nested(Self::list)?,
            Some('"') => Value::Text(self.string()?),
            Some('-' | '0'..='9') => {
                let rest = self.rest();
                let end = rest
                    .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
                let number = &rest[..end.unwrap_or(rest.len())];
                if number.parse::<f64>().is_ok_and(f64::is_finite) {
                    self.at += number.len();
                    Value::Number(number)
                } else {
                    return self.fail("a number is written wrongly", "write digits, such as 20000");
                }
            }
            _ => self.word()?,
        };
        Ok(Json { value, at: start..self.at })
    }

    fn word(&mut self) -> Found<Value<'t>> {
        let rest = self.rest();
        let word = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len())];
        let value = match word {
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            "null" => Value::Null,
            _ => {
                return self.fail(
                    "there is no value",
                    "write an object, a list, a number, a text in quotes, true or false",
                );
            }
        };
        self.at += word.len();
        Ok(value)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Found<Value<'t>>) -> Found<Value<'t>> {
        if self.depth == DEPTH_MAX {
            return self
                .fail("too many objects and lists stand in each other", "write a flatter file");
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn list(&mut self) -> Found<Value<'t>> {
        let mut items = Vec::new();
        loop {
            self.blanks()?;
            if self.passes(']') {
                return Ok(Value::List(items));
            }
            items.push(self.value()?);
            self.blanks()?;
            if !self.passes(',') && self.peek() != Some(']') {
                return self.fail("the list goes on without a comma", "write , or ]");
            }
        }
    }

    fn object(&mut self) -> Found<Value<'t>> {
        let mut members = Vec::new();
        loop {
            self.blanks()?;
            if self.passes('}') {
                return Ok(Value::Object(members));
            }
            if self.peek() != Some('"') {
                return self.fail("a key is missing", "write a key in quotes, or }");
            }
            let start = self.at;
            let key = self.string()?;
            let key_at = start..self.at;
            self.blanks()?;
            let value = if self.passes(':') {
                self.value()?
            } else if matches!(self.peek(), Some(',' | '}')) {
                Json { value: Value::Null, at: key_at.clone() }
            } else {
                return self
                    .fail("a key has neither colon nor comma behind it", "write : and a value");
            };
            members.push(Member { key, key_at, value });
            self.blanks()?;
            if !self.passes(',') && self.peek() != Some('}') {
                return self.fail("the object goes on without a comma", "write , or }");
            }
        }
    }

    fn string(&mut self) -> Found<Cow<'t, str>> {
        let start = self.at + 1;
        let rest = &self.text[start..];
        let Some(end) = rest.find(['"', '\\', '\n']) else {
            return self.fail("this text does not end", "write \" where it ends");
        };
        if rest[end..].starts_with('"') {
            self.at = start + end + 1;
            return Ok(Cow::Borrowed(&rest[..end]));
        }
        let mut out = String::new();
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + at + 1;
                    return Ok(Cow::Owned(out));
                }
                '\n' => break,
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('b' | 'f') => out.push(' '),
                    Some('u') => {
                        let code = rest
                            .get(at + 2..at + 6)
                            .and_then(|hex| u32::from_str_radix(hex, 16).ok());
                        // Halves of a pair have no character of their own.
                        out.push(code.and_then(char::from_u32).unwrap_or('\u{fffd}'));
                        (0..4).for_each(|_| _ = chars.next());
                    }
                    Some(c) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        self.fail("this text does not end", "write \" where it ends, on the same line")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(json: &Json<'_>) -> String {
        match &json.value {
            Value::Null => "null".to_owned(),
            Value::Bool(value) => value.to_string(),
            Value::Number(text) => (*text).to_owned(),
            Value::Text(text) => format!("{text:?}"),
            Value::List(items) => {
                format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(","))
            }
            Value::Object(members) => {
                let members: Vec<String> = members
                    .iter()
                    .map(|member| format!("{}:{}", member.key, shown(&member.value)))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    fn is(text: &str, expected: &str) {
        assert_eq!(
            parse(text).map(|json| shown(&json)).map_err(|(at, words)| (at, words.what)),
            Ok(expected.to_owned())
        );
    }

    #[test]
    fn keys_are_kept_in_order_however_often_they_come() {
        is("{\"run\":1, \"sleep\":2, \"run\":3}", "{run:1,sleep:2,run:3}");
        is(" [ ] ", "[]");
        is("{\"a\":{\"b\":[1,-2.5,1e3,true,null,\"x\"]}}", "{a:{b:[1,-2.5,1e3,true,null,\"x\"]}}");
    }

    #[test]
    fn what_workgen_overlooks_is_overlooked() {
        is(
            "{ /* a */ \"a\":1, // b\n \"b\":[1,2,], \"suspend\", \"c\":False, }",
            "{a:1,b:[1,2],suspend:null,c:false}",
        );
        is("\u{feff}{\"a\":\"\\u00e4\\\"\\n\\ud800\"}", "{a:\"ä\\\"\\n\u{fffd}\"}");
    }

    #[test]
    fn a_comment_ends_behind_its_beginning() {
        is("/*/ \"no\" */{}/**/", "{}");
        is("[1 /***/, 2]", "[1,2]");
    }

    #[test]
    fn places_are_those_of_the_text() {
        let text = "{\"a\": [10, \"b\"]}";
        let Ok(Json { value: Value::Object(members), .. }) = parse(text) else {
            panic!("an object")
        };
        assert_eq!(&text[members[0].key_at.clone()], "\"a\"");
        let Value::List(items) = &members[0].value.value else { panic!("a list") };
        assert_eq!([&text[items[0].at.clone()], &text[items[1].at.clone()]], ["10", "\"b\""]);
    }

    #[test]
    fn what_is_no_json_is_refused_where_it_stops_being_some() {
        let no = |text: &str| parse(text).err().map_or(usize::MAX, |(at, _)| at.start);
        for (text, at) in [
            ("", 0),
            ("{", 1),
            ("{\"a\"", 4),
            ("{\"a\":}", 5),
            ("{a:1}", 1),
            ("{\"a\":1 \"b\":2}", 7),
            ("[1 2]", 3),
            ("{}x", 2),
            ("[1.2.3]", 1),
            ("[\"a\n\"]", 1),
            ("[\"a\\", 1),
            ("/* a", 0),
            ("/*/ {}", 0),
            ("[tru]", 1),
        ] {
            assert_eq!(no(text), at, "{text:?}");
        }
        assert_eq!(no(&"[".repeat(100_000)), DEPTH_MAX);
    }
}
