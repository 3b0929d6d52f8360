//! Texts of generations, records and instances of programs, for files.
//!
//! The first line of a text is `talea-deploy KIND VERSION HASH`. The rest is JSON, whose SHA-256 is
//! HASH: a text that was torn or edited is refused. Unknown keys are errors. Times are integers in
//! nanoseconds, and CPUs are lists as in `taskset`.
//!
//! | kind | content | file |
//! | --- | --- | --- |
//! | `generation` | a generation, and the texts of its system file | [`StoredGeneration`] |
//! | `record` | the record, with the numbers of its generations | [`StoredRecord`] |
//! | `instance` | a program that was started | [`Instance`] |
//!
//! Requests to the driver and its answers are JSON without a first line ([`message`]), in packets
//! ([`frames`]).

pub mod frames;
mod generation;
mod instance;
pub mod message;
mod record;
mod values;

pub use generation::{SourceFile, StoredGeneration};
pub use instance::Instance;
pub use record::StoredRecord;

use crate::generation::{FileHash, InvalidGeneration};
use crate::sha256::sha256;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use talea_core::mutate;

/// Version of all texts. A text of another version is refused.
pub const VERSION: u32 = 1;
/// First word of each text.
const MAGIC: &str = "talea-deploy";

/// Reason why a text is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextError {
    /// The first line is not that of this kind of text.
    NotOurs {
        /// The kind.
        kind: &'static str,
    },
    /// The version is not [`VERSION`].
    Version {
        /// Version of the text.
        found: u32,
    },
    /// The text does not have the hash of its first line.
    Changed,
    /// The texts of the system file do not have the hash of the generation.
    OtherFile,
    /// The text is no JSON of the known form; the reason of the parser.
    Malformed(String),
    /// The generation violates an invariant.
    Invalid(InvalidGeneration),
    /// The record has another number of tasks than its generation, or names a generation that does
    /// not exist.
    OtherGeneration,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::NotOurs { kind } => write!(f, "it does not begin like a {kind}"),
            TextError::Version { found } => {
                write!(f, "it has version {found}, and this program reads version {VERSION}")
            }
            TextError::Changed => f.write_str(
                "its text does not have the hash in its first line: it is torn or edited",
            ),
            TextError::OtherFile => {
                f.write_str("the texts of its system file do not have the hash of the generation")
            }
            TextError::Malformed(why) => f.write_str(why),
            TextError::Invalid(why) => why.fmt(f),
            TextError::OtherGeneration => f.write_str("it does not fit its generation"),
        }
    }
}

impl std::error::Error for TextError {}

impl From<InvalidGeneration> for TextError {
    fn from(why: InvalidGeneration) -> TextError {
        TextError::Invalid(why)
    }
}

/// Returns a text with its first line.
fn seal(kind: &str, value: &impl Serialize) -> String {
    let body = json(value);
    let hash = FileHash(sha256(body.as_bytes()));
    format!("{MAGIC} {kind} {VERSION} {hash}\n{body}")
}

/// Returns the value of a text, after a check of its first line.
fn open<T: DeserializeOwned>(kind: &'static str, text: &str) -> Result<T, TextError> {
    let not_ours = TextError::NotOurs { kind };
    let (first, body) = text.split_once('\n').ok_or(not_ours.clone())?;
    let mut words = first.split(' ');
    if (words.next(), words.next()) != (Some(MAGIC), Some(kind)) {
        return Err(not_ours);
    }
    let found = words.next().and_then(|word| word.parse().ok()).ok_or(not_ours)?;
    if found != VERSION {
        return Err(TextError::Version { found });
    }
    let hash = FileHash(sha256(body.as_bytes())).to_string();
    if mutate!("deploy-text-hash", words.next() != Some(&hash), false) {
        return Err(TextError::Changed);
    }
    parse(body)
}

fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("these values have a JSON form");
    text.push('\n');
    text
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, TextError> {
    serde_json::from_str(text).map_err(|error| TextError::Malformed(error.to_string()))
}
