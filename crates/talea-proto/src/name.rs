//! Names of plugins and kinds of plugins, with a fixed length.

use core::fmt;

/// A name of at most 31 bytes, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Name(pub [u8; 32]);

impl Name {
    /// Creates a name from text; `None` if the text is empty, longer than 31 bytes, or contains a
    /// zero.
    pub fn new(text: &str) -> Option<Name> {
        let bytes = text.as_bytes();
        if bytes.is_empty() || bytes.len() > 31 || bytes.contains(&0) {
            return None;
        }
        let mut name = [0; 32];
        name[..bytes.len()].copy_from_slice(bytes);
        Some(Name(name))
    }

    /// Returns the name as text; `?` if it is not UTF-8.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(32);
        core::str::from_utf8(&self.0[..end]).unwrap_or("?")
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
