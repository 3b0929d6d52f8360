//! Text of a generation with its system file.

use super::values::{RootText, TaskText, sha256_of};
use super::{TextError, open, seal};
use crate::generation::{FileHash, Generation};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use talea_core::mutate;

/// Kind of the text.
const KIND: &str = "generation";

/// Text of a system file or of an included one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Path of the file, as the administrator named it.
    pub path: String,
    /// Text of the file.
    pub text: String,
}

/// Generation with the texts from which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGeneration {
    /// The generation.
    pub generation: Arc<Generation>,
    /// The system file, and the files that it includes.
    pub files: Vec<SourceFile>,
}

impl StoredGeneration {
    /// Returns the text.
    pub fn to_text(&self) -> String {
        seal(KIND, &StoredGenerationText::from(self))
    }

    /// Reads a text of [`StoredGeneration::to_text`].
    ///
    /// # Errors
    /// The first reason why the text is refused.
    pub fn from_text(text: &str) -> Result<StoredGeneration, TextError> {
        open::<StoredGenerationText>(KIND, text)?.try_into()
    }
}

/// JSON form of [`StoredGeneration`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredGenerationText {
    generation: GenerationText,
    files: Vec<SourceFile>,
}

/// JSON form of [`Generation`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GenerationText {
    number: u64,
    sha256: String,
    unproved: bool,
    roots: Vec<RootText>,
    tasks: Vec<TaskText>,
    report: String,
}

impl From<&StoredGeneration> for StoredGenerationText {
    fn from(stored: &StoredGeneration) -> StoredGenerationText {
        let generation = (&*stored.generation).into();
        StoredGenerationText { generation, files: stored.files.clone() }
    }
}

impl TryFrom<StoredGenerationText> for StoredGeneration {
    type Error = TextError;

    fn try_from(text: StoredGenerationText) -> Result<StoredGeneration, TextError> {
        let generation = Generation::try_from(text.generation)?;
        let hash = FileHash::of(text.files.iter().map(|file| file.text.as_str()));
        if mutate!("deploy-file-hash", hash != generation.hash(), false) {
            return Err(TextError::OtherFile);
        }
        Ok(StoredGeneration { generation: Arc::new(generation), files: text.files })
    }
}

impl From<&Generation> for GenerationText {
    fn from(generation: &Generation) -> GenerationText {
        GenerationText {
            number: generation.number(),
            sha256: generation.hash().to_string(),
            unproved: generation.is_unproved(),
            roots: generation.roots().iter().map(RootText::from).collect(),
            tasks: generation.tasks().iter().map(TaskText::from).collect(),
            report: generation.report().to_owned(),
        }
    }
}

impl TryFrom<GenerationText> for Generation {
    type Error = TextError;

    fn try_from(text: GenerationText) -> Result<Generation, TextError> {
        let GenerationText { number, sha256, unproved, roots, tasks, report } = text;
        let hash = sha256_of(&sha256)?;
        let roots = roots.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        let tasks = tasks.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?;
        Ok(Generation::new(number, hash, roots, tasks, report, unproved)?)
    }
}
