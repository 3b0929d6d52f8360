//! Keys of TOML files: types of the closed lists from which readers take names, forms and texts.
//!
//! Model: a file format is an enum of its sections ([`FileSection`]) and one list of keys. The
//! daemon's configuration has its list in [`crate::keys`], system files have theirs in
//! `talea-system`.

use std::fmt::Debug;
use talea_core::Span;

/// Section of a file format: a table with a closed list of keys.
pub trait FileSection: Copy + Debug + PartialEq + 'static {
    /// Longest duration that a value may state; `None` means no limit.
    const MAX_SPAN: Option<Span>;

    /// Returns the header as written in the file.
    fn header(self) -> &'static str;

    /// Whether the section is outside of any table.
    fn is_top(self) -> bool;

    /// Returns the keys of all sections of the file format.
    fn file() -> &'static [Key<Self>];

    /// Returns the keys of the section.
    fn keys(self) -> impl Iterator<Item = &'static Key<Self>> {
        Self::file().iter().filter(move |key| key.section == self)
    }

    /// Returns the key with the name `name`.
    fn key(self, name: &str) -> Option<&'static Key<Self>> {
        self.keys().find(|key| key.name == name)
    }
}

/// Form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table or a list of tables.
    Table,
    /// Text in quotes.
    Text,
    /// One of these words in quotes.
    Word(&'static [&'static str]),
    /// A whole number.
    Integer,
    /// A list of whole numbers.
    Integers,
    /// A decimal number.
    Decimal,
    /// `true` or `false`.
    Boolean,
    /// A duration in quotes, with its unit.
    Duration,
    /// A duration in quotes, or a value that several durations describe.
    Durations,
    /// A list of texts.
    Texts,
}

impl Form {
    /// Returns the text of the form for a message: "must be …".
    pub fn describe(self) -> &'static str {
        match self {
            Form::Table => "a table",
            Form::Text | Form::Word(_) => "text in quotes",
            Form::Integer => "a whole number",
            Form::Integers => "a list of whole numbers",
            Form::Decimal => "a decimal number",
            Form::Boolean => "true or false",
            Form::Duration => "a duration in quotes",
            Form::Durations => "a duration in quotes or several",
            Form::Texts => "a list of texts in quotes",
        }
    }

    /// Returns the text of the form in the tables of the manual.
    pub fn cell(self) -> String {
        match self {
            Form::Table => "table".to_owned(),
            Form::Text => "text".to_owned(),
            Form::Word(words) => {
                words.iter().map(|w| format!("`\"{w}\"`")).collect::<Vec<_>>().join(", ")
            }
            Form::Integer => "integer".to_owned(),
            Form::Integers => "list of integers".to_owned(),
            Form::Decimal => "decimal".to_owned(),
            Form::Boolean => "`true`, `false`".to_owned(),
            Form::Duration => "duration".to_owned(),
            Form::Durations => "duration, or several".to_owned(),
            Form::Texts => "list of texts".to_owned(),
        }
    }
}

/// Key of a file, with its documentation.
#[derive(Clone, Copy, Debug)]
pub struct Key<S> {
    /// Section that the key belongs to.
    pub section: S,
    /// Name as written in the file.
    pub name: &'static str,
    /// Form of the value.
    pub form: Form,
    /// Value if the key is missing, as written in a file, or the effect of the missing key.
    pub default: &'static str,
    /// Unit and accepted values.
    pub range: &'static str,
    /// Meaning, in one sentence.
    pub meaning: &'static str,
    /// Valid value, as written in a file.
    pub example: &'static str,
    /// Plugin kinds that have the key; empty means all.
    pub kinds: &'static [&'static str],
}

/// Creates a key without documentation, for a list of keys.
pub const fn key<S: Copy>(
    section: S,
    name: &'static str,
    form: Form,
    example: &'static str,
) -> Key<S> {
    Key { section, name, form, default: "", range: "", meaning: "", example, kinds: &[] }
}

impl<S: Copy> Key<S> {
    /// Returns the meaning as the reason of a diagnostic: without capital and full stop.
    pub fn reason(&self) -> String {
        let meaning = self.meaning.trim_end_matches('.').trim_end_matches("; see below");
        if meaning.chars().nth(1).is_some_and(char::is_uppercase) {
            // An abbreviation.
            return meaning.to_owned();
        }
        let mut letters = meaning.chars();
        letters
            .next()
            .map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
    }

    /// Sets the documented default.
    #[must_use]
    pub const fn default(mut self, default: &'static str) -> Key<S> {
        self.default = default;
        self
    }

    /// Sets unit and accepted values.
    #[must_use]
    pub const fn range(mut self, range: &'static str) -> Key<S> {
        self.range = range;
        self
    }

    /// Sets the meaning.
    #[must_use]
    pub const fn means(mut self, meaning: &'static str) -> Key<S> {
        self.meaning = meaning;
        self
    }

    /// Restricts the key to some plugin kinds.
    #[must_use]
    pub const fn only(mut self, kinds: &'static [&'static str]) -> Key<S> {
        self.kinds = kinds;
        self
    }
}
