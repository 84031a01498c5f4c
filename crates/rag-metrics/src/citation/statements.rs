//! The statements of an answer and the passages that each of them cites.
//!
//! A citation is one or several numbers in brackets: `[1]`, `[1][2]`, `[1, 3]`, `[2-4]`, but not `[10,000]`.
//! Statements are the sentences of the answer without its citations ([`crate::sentences::sentences`]), and lines.
//! The mark of a list item ("2.", "a)", "**iv.**") is not a statement, and marks after a sentence (the end of an
//! emphasis) are part of it.
//!
//! A citation belongs to the sentence that contains it. After a full stop it belongs to the sentence before if it
//! touches the stop, if that sentence has no other citation, or if nothing else follows on the line; otherwise to
//! the next sentence. The authors' program assigns every citation after a full stop and a space to the next
//! sentence.

use std::collections::HashSet;
use std::ops::Range;

use crate::sentences::{is_item_mark, item_text, sentences};

/// Most numbers in a range: `[1-9999]` is not a citation.
const LONGEST_RANGE: usize = 16;
/// Most bytes between the brackets of a citation.
const LONGEST: usize = 256;
/// Most digits of a number; a longer one exceeds any number of passages.
const DIGITS: usize = 9;

/// A statement of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// Its text without citations.
    pub text: String,
    /// Cited numbers, each once, in the order of the answer; the first passage has 1.
    pub citations: Vec<usize>,
}

/// Brackets of one line with only white space between them.
struct Group {
    numbers: Vec<usize>,
    /// End of the text before them, in the text without citations.
    behind: usize,
    /// Their offset in that text, if they begin a line.
    begins_line: Option<usize>,
    /// True if they touch the text before them.
    touches: bool,
    /// True if no letter or digit follows on the line.
    ends_line: bool,
}

/// An answer without its citations and the white space before them. Text without citations stays as it is.
#[must_use]
pub fn without_marks(answer: &str) -> String {
    let (text, groups) = without_citations(answer);
    if groups.is_empty() { text } else { text.trim().to_owned() }
}

/// The statements of an answer, in order. Empty for an answer without a letter or a digit outside of citations and
/// marks of list items.
#[must_use]
pub fn statements(answer: &str) -> Vec<Statement> {
    let (text, groups) = without_citations(answer);
    let places = places(&text);
    let Some(last) = places.len().checked_sub(1) else { return Vec::new() };
    let (mut cited, mut seen): (Vec<Vec<usize>>, HashSet<(usize, usize)>) =
        (vec![Vec::new(); last + 1], HashSet::new());
    for group in groups {
        let at = group.begins_line.filter(|_| !group.ends_line).unwrap_or(group.behind);
        // The first statement that ends at the citation or after it.
        let here = places.partition_point(|place| place.end < at).min(last);
        let stays = group.touches || group.ends_line || cited[here].is_empty();
        let owner = if places[here].end == at && !stays { (here + 1).min(last) } else { here };
        cited[owner].extend(group.numbers.into_iter().filter(|number| seen.insert((owner, *number))));
    }
    let statement =
        |(place, citations): (Range<usize>, Vec<usize>)| Statement { text: text[place].trim().to_owned(), citations };
    places.into_iter().zip(cited).map(statement).collect()
}

/// Ranges of the statements in a text without citations.
fn places(text: &str) -> Vec<Range<usize>> {
    let borders = sentences(text);
    let starts = std::iter::once(0).chain(borders.iter().map(|border| border.end));
    let ends = borders.iter().map(|border| border.start).chain(std::iter::once(text.trim_end().len()));
    let (mut places, mut mark, mut is_list): (Vec<Range<usize>>, Option<Range<usize>>, bool) =
        (Vec::new(), None, false);
    // Marks by themselves, such as a line of dashes, are not statements.
    for (start, end) in starts.zip(ends).filter(|(start, end)| text[*start..*end].contains(char::is_alphanumeric)) {
        let sentence = &text[start..end];
        let item = item_text(sentence);
        is_list |= item.is_some();
        mark = (item.is_none() && is_item_mark(sentence)).then_some(start..end);
        if mark.is_none() {
            places.push(start + item.unwrap_or(0)..end);
        }
    }
    // A number on the last line may be the answer, unless it is in a list: then it is a cut-off item.
    places.extend(mark.filter(|_| !is_list));
    places
}

/// A text without its citations and the white space before them, and the citations.
fn without_citations(answer: &str) -> (String, Vec<Group>) {
    let (mut text, mut groups): (String, Vec<Group>) = (String::with_capacity(answer.len()), Vec::new());
    // The end of the last character other than white space, and if a line ended since.
    let (mut solid, mut new_line) = (0, true);
    // `open`: only spaces followed the last citation. `unfollowed`: the first group of the line that nothing followed yet.
    let (mut open, mut unfollowed) = (false, 0);
    let mut rest = answer;
    while let Some(first) = rest.chars().next() {
        if let Some((length, numbers)) = citation(rest) {
            rest = &rest[length..];
            match groups.last_mut().filter(|_| open) {
                Some(group) => group.numbers.extend(numbers),
                None => groups.push(Group {
                    numbers,
                    behind: solid,
                    begins_line: new_line.then_some(text.len()),
                    touches: !new_line && solid == text.len(),
                    ends_line: true,
                }),
            }
            if !new_line {
                text.truncate(solid);
            }
            open = true;
            // "B.[1]C": the sentences must not become one word.
            if !new_line && rest.starts_with(char::is_alphanumeric) {
                text.push(' ');
            }
            continue;
        }
        text.push(first);
        rest = &rest[first.len_utf8()..];
        if first == '\n' {
            (open, new_line, unfollowed) = (false, true, groups.len());
        } else if !first.is_whitespace() {
            (open, new_line, solid) = (false, false, text.len());
        }
        if first.is_alphanumeric() {
            groups[unfollowed..].iter_mut().for_each(|group| group.ends_line = false);
            unfollowed = groups.len();
        }
    }
    (text, groups)
}

/// The citation that a text begins with: its length in bytes, and its numbers.
fn citation(text: &str) -> Option<(usize, Vec<usize>)> {
    let inner = text.strip_prefix('[')?;
    let close = inner.bytes().take(LONGEST).position(|byte| byte == b']')?;
    let mut numbers = Vec::new();
    for (place, part) in inner[..close].split([',', ';']).enumerate() {
        // A round number: "[10,000] people".
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        if place > 0 && part.len() == 3 && is_number && part.starts_with('0') {
            return None;
        }
        match part.split_once(['-', '\u{2013}']) {
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                if from > to || to - from >= LONGEST_RANGE {
                    return None;
                }
                numbers.extend(from..=to);
            }
            None => numbers.push(number(part)?),
        }
    }
    Some((close + 2, numbers))
}

fn number(text: &str) -> Option<usize> {
    let digits = text.trim_matches(' ');
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    Some(if significant.len() > DIGITS { usize::MAX } else { significant.parse().unwrap_or(0) })
}
