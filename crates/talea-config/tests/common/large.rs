//! Files as large as a reader accepts.
#![allow(dead_code, reason = "each test file uses its part")]

use talea_config::FILE_MAX;

/// Returns `head` with as many repetitions of `piece` as fit into the largest file.
pub(crate) fn filled(head: &str, piece: &str) -> String {
    let mut text = head.to_owned();
    while text.len() + piece.len() <= FILE_MAX {
        text.push_str(piece);
    }
    text
}

/// Returns a file of many pieces ([`filled`]), with a number in place of `#`.
pub(crate) fn numbered(head: &str, piece: &str) -> String {
    numbered_to(FILE_MAX, head, piece)
}

pub(crate) fn numbered_to(most: usize, head: &str, piece: &str) -> String {
    let mut text = head.to_owned();
    for n in 0.. {
        let piece = piece.replace('#', &n.to_string());
        if text.len() + piece.len() > most {
            break;
        }
        text.push_str(&piece);
    }
    text
}
