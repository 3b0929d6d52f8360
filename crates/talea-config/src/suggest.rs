//! Suggestions for a misspelt word: the nearest of some words.
//!
//! Distance: insertions, deletions, substitutions and swaps of neighbours cost one each (optimal
//! string alignment). Damerau, Comm. ACM 7(3), 1964.

/// Returns the word nearest to `given`; `None` if no word is near enough. A third of the letters
/// may differ, or one letter of a short word. Case does not count.
pub fn nearest<'w>(given: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Long nonsense is not a typing mistake, and the distance is quadratic.
    const LONGEST: usize = 64;
    if given.is_empty() || given.len() > LONGEST {
        return None;
    }
    let given = given.to_lowercase();
    let reach = |word: &str| (word.chars().count() / 3).max(1);
    words
        .into_iter()
        .map(|word| (distance(&given, &word.to_lowercase()), word))
        .filter(|&(d, word)| d <= reach(word))
        .min_by_key(|&(d, _)| d)
        .map(|(_, word)| word)
}

fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best =
                (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

/// Returns the words in quotes: `"a", "b" or "c"`.
pub fn list<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|w| format!("\"{w}\"")).collect();
    match words.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_finds_none() {
        let words = ["cpus", "name", "priorities", "threshold"];
        for (given, want) in [
            ("cpu", Some("cpus")),
            ("CPUS", Some("cpus")),
            ("nmae", Some("name")),
            ("priority", Some("priorities")),
            ("treshhold", Some("threshold")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, words), want, "{given}");
        }
        assert_eq!(nearest(&"n".repeat(1 << 20), words), None);
    }

    #[test]
    fn lists_read_like_a_sentence() {
        assert_eq!(list(["a"]), "\"a\"");
        assert_eq!(list(["a", "b", "c"]), "\"a\", \"b\" or \"c\"");
    }
}
