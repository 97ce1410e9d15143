//! Lines of input files in error messages, with carets under the text at fault.

use std::ops::Range;

/// Maximum length of an excerpt, in characters.
const MAX_EXCERPT: usize = 120;

/// Maximum number of characters before the text at fault in the excerpt of a long line.
const MAX_BEFORE: usize = 40;

/// A line of an input file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Line number, from one.
    pub number: usize,
    /// Column of the text at fault in characters, from one, where known.
    pub column: Option<usize>,
    /// Length of the text at fault in characters, at least one.
    pub width: usize,
    /// Line without its end.
    pub text: String,
}

impl SourceLine {
    /// Returns the line of `text` in which the byte range `span` starts.
    pub(crate) fn at(text: &str, span: &Range<usize>) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = before.get(start..).unwrap_or_default().chars().count();
        let inside = text.get(span.clone()).unwrap_or_default();
        let width = inside.lines().next().unwrap_or_default().chars().count();
        Self {
            number: 1 + before.matches('\n').count(),
            column: Some(column + 1),
            width: width.max(1),
            text: line.to_string(),
        }
    }

    /// Returns line `number` of `text`, with the column of `found` where it occurs exactly once.
    pub(crate) fn numbered(text: &str, number: usize, found: Option<&str>) -> Self {
        let line = text.lines().nth(number.saturating_sub(1)).unwrap_or_default();
        let found = found.filter(|found| line.matches(found).count() == 1);
        let before = found.and_then(|found| line.split_once(found)).map(|(before, _)| before);
        Self {
            number,
            column: before.map(|before| before.chars().count() + 1),
            width: found.map_or(1, |found| found.chars().count().max(1)),
            text: line.to_string(),
        }
    }

    /// Returns line and column as they follow the file name in an error.
    pub(crate) fn position(&self) -> String {
        match self.column {
            Some(column) => format!("{}:{column}", self.number),
            None => self.number.to_string(),
        }
    }

    /// Returns the line in a frame, with carets under the text at fault; empty for an empty line.
    pub(crate) fn excerpt(&self) -> String {
        if self.text.trim().is_empty() {
            return String::new();
        }
        let column = self.column.unwrap_or(1) - 1;
        let is_long = self.text.chars().count() > MAX_EXCERPT;
        let left_out = if is_long { column.saturating_sub(MAX_BEFORE) } else { 0 };
        let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
        let shown = self.text.chars().skip(left_out).take(MAX_EXCERPT).map(visible);
        let shown: String = shown.collect();
        let number = self.number.to_string();
        let margin = " ".repeat(number.len());
        let mut lines = format!("\n{margin} |\n{number} | {}\n{margin} |", shown.trim_end());
        if self.column.is_some() {
            let room = MAX_EXCERPT.saturating_sub(column - left_out).max(1);
            let blank = " ".repeat(column - left_out);
            lines.push_str(&format!(" {blank}{}", "^".repeat(self.width.min(room))));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_counts_characters_not_bytes() {
        let line = SourceLine::at("a = 1\né = \"ü\", x\n", &(17..18));
        assert_eq!((line.number, line.column, line.width), (2, Some(10), 1));
        assert_eq!(line.excerpt(), "\n  |\n2 | é = \"ü\", x\n  |          ^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_fault() {
        let text = format!("x = \"{}\" bad {}", "a".repeat(500), "b".repeat(500));
        let start = text.find("bad").unwrap();
        let excerpt = SourceLine::at(&text, &(start..start + 3)).excerpt();
        let lines: Vec<&str> = excerpt.lines().collect();
        assert_eq!(lines[2].find("bad"), lines[3].find("^^^"));
        assert!(lines[2].len() < 130, "{excerpt}");
    }

    #[test]
    fn a_span_beyond_the_text_is_its_end() {
        let line = SourceLine::at("a = ", &(4..9));
        assert_eq!((line.number, line.column, line.width), (1, Some(5), 1));
        assert_eq!(SourceLine::at("a", &(7..9)).number, 1);
    }
}
