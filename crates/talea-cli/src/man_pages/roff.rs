//! Conversion of a chapter of the manual to a man page.
//!
//! Model: only the Markdown that the chapters use: headings, paragraphs, lists of one level, fenced
//! blocks, tables, and `code`, **bold** and links in a line. A table of keys becomes a list of
//! tagged paragraphs, the first column its tag. Comments are omitted.

use std::fmt::Write;

/// Returns the page `name` of `section`. `about` is the page's line in whatis.
pub(super) fn page(name: &str, section: u8, about: &str, chapter: &str, see_also: &str) -> String {
    let mut out = format!(
        ".TH {name} {section}  Talea \"Talea manual\"\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n",
        text(name),
        text(about)
    );
    body(&mut out, chapter);
    let _ = write!(out, ".SH SEE ALSO\n{}\n", text(see_also));
    out
}

fn body(out: &mut String, chapter: &str) {
    let mut headings: Vec<String> = Vec::new();
    let mut lines =
        chapter.lines().skip_while(|line| line.starts_with("# ") || line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            // Names of the file keep their case; words become upper case as usual in headings.
            let heading =
                if heading.starts_with('[') { heading.to_owned() } else { heading.to_uppercase() };
            let _ = writeln!(out, ".SH {}", text(&heading));
        } else if line.starts_with("```") {
            out.push_str(".PP\n.RS 4\n.nf\n");
            for code in lines.by_ref().take_while(|line| !line.starts_with("```")) {
                let _ = writeln!(out, "{}", text(code));
            }
            out.push_str(".fi\n.RE\n");
        } else if line.starts_with("| ") {
            let cells = cells(line);
            if lines.next_if(|next| next.starts_with("| ---")).is_some() {
                headings = cells;
            } else {
                entry(out, &headings, &cells);
            }
        } else if let Some(item) = line.strip_prefix("- ") {
            let _ = writeln!(out, ".IP \\(bu 2\n{}", inline(item));
        } else if line.is_empty() {
            let is_text = |next: &str| {
                next.starts_with(|c: char| c.is_alphanumeric() || c == '`')
                    && !next.starts_with("```")
            };
            out.push_str(if lines.peek().is_some_and(|next| is_text(next)) { ".PP\n" } else { "" });
        } else if !line.starts_with("<!--") {
            let _ = writeln!(out, "{}", inline(line.trim_start()));
        }
    }
}

/// Writes one row: its tag, the last column, then the columns between with their headings.
fn entry(out: &mut String, headings: &[String], cells: &[String]) {
    let [tag, between @ .., last] = cells else { return };
    let _ = writeln!(out, ".TP\n{}\n{}", inline(tag), inline(last));
    let said = headings.iter().skip(1).zip(between).filter(|(_, cell)| !cell.is_empty());
    let said: Vec<String> = said.map(|(heading, cell)| format!("{heading}: {cell}")).collect();
    if !said.is_empty() {
        let _ = writeln!(out, ".br\n({})", inline(&said.join("; ")));
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Converts `code` and **bold** to bold, and links to their text.
fn inline(line: &str) -> String {
    let mut out = String::new();
    let mut bold = false;
    let mut rest = line;
    while let Some(at) = rest.find(['`', '*', '[']) {
        out.push_str(&text(&rest[..at]));
        let marked = &rest[at..];
        let toggle =
            if marked.starts_with("**") { 2 } else { usize::from(marked.starts_with('`')) };
        if toggle > 0 {
            bold = !bold;
            out.push_str(if bold { "\\fB" } else { "\\fR" });
            rest = &marked[toggle..];
        } else if let Some((words, after)) = link(marked) {
            out.push_str(&text(words));
            rest = after;
        } else {
            out.push_str(&text(&marked[..1]));
            rest = &marked[1..];
        }
    }
    out.push_str(&text(rest));
    // A dot or a quote at the start of a line would be a request.
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}

fn link(text: &str) -> Option<(&str, &str)> {
    let (words, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (_, after) = rest.split_once(')')?;
    (!words.contains(['[', ']'])).then_some((words, after))
}

/// Escapes text for roff, with hyphens that can be copied.
pub(super) fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Escapes a line of text, which must not become a request.
fn text(text: &str) -> String {
    let text = escape(text);
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_chapters_use_becomes_roff() {
        let chapter = "# Title\n\nA `word` of **weight**,\n[a link](there.md) and [[rule]].\n\n## Part\n\n- one\n  goes \
                       on\n\n```toml\n.a = \"1-2\"\n```\n\n<!-- x -->\n| key | range | meaning |\n| --- | --- | --- |\n| \
                       `k` | 1 | It is. |\n| `l` |  | It too. |\n";
        let mut out = String::new();
        body(&mut out, chapter);
        assert_eq!(
            out,
            "A \\fBword\\fR of \\fBweight\\fR,\na link and [[rule]].\n.SH PART\n.IP \\(bu 2\none\ngoes on\n.PP\n.RS \
             4\n.nf\n\\&.a = \"1\\-2\"\n.fi\n.RE\n.TP\n\\fBk\\fR\nIt is.\n.br\n(range: 1)\n.TP\n\\fBl\\fR\nIt too.\n"
        );
    }
}
