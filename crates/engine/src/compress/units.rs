//! Where tokens lie in a text, where the text may be cut, and what is left of it.
//!
//! Borders of units are borders of tokens that are also borders in the text:
//!
//! - `Sentence`: ends at a line end, and at a stop followed by white space, except after an abbreviation, an
//!   initial or the mark of a list item ([`sentences()`]).
//! - `Phrase`: ends at punctuation that ends a clause, and before a function word that follows another word ("The
//!   looms | of Harrowgate | were driven | by water"). The function words are English; in other languages only
//!   punctuation ends a phrase.
//! - `Token`: ends at the end of a Unicode word. Words joined by hyphens, dots, slashes, carets and similar marks
//!   are one unit. So are a number with its sign, point, comparison, currency, per cent and groups of three digits
//!   ("1 200 000"), `C++` and `C#`, and up to five capitalised words separated by a space, with a number after
//!   them.
//!
//! In scripts without spaces a character is a word. White space belongs to the text after it.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::types::CompressionUnit;
use rag_metrics::sentences::{borders, is_function_word, sentences};

/// The end in bytes of each of the first tokens of a text, from the bytes of the tokens. The last one includes the
/// white space at the end. White space may differ, because tokenisers add, drop or move it. `None` if the tokens do
/// not spell the text, for example if a tokeniser rewrites characters.
#[must_use]
pub fn ends(text: &str, pieces: &[Vec<u8>]) -> Option<Vec<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut ends = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let rest = &bytes[at..];
        if rest.starts_with(piece) {
            at += piece.len();
        } else {
            let blank = rest.len() - rest.trim_ascii_start().len();
            let bare = piece.trim_ascii_start();
            if !rest[blank..].starts_with(bare) {
                return None;
            }
            at += blank + bare.len();
        }
        ends.push(at);
    }
    let last = ends.last_mut()?;
    if bytes[at..].trim_ascii().is_empty() {
        *last = bytes.len();
    }
    Some(ends)
}

/// The units of a text as ranges of its tokens. They cover all tokens, in order.
#[must_use]
pub fn units(text: &str, ends: &[usize], unit: CompressionUnit) -> Vec<Range<usize>> {
    let borders = match unit {
        CompressionUnit::Sentence => sentences(text),
        CompressionUnit::Phrase => phrases(text),
        CompressionUnit::Token => borders(text, words(text)),
    };
    let (mut units, mut start) = (Vec::new(), 0);
    for border in borders {
        let first = ends.partition_point(|end| *end < border.start);
        let mut within = ends[first..].iter().take_while(|end| **end <= border.end);
        let Some(place) = within.position(|end| text.is_char_boundary(*end)) else { continue };
        let next = first + place + 1;
        if next > start && next < ends.len() {
            units.push(start..next);
            start = next;
        }
    }
    if start < ends.len() {
        units.push(start..ends.len());
    }
    units
}

/// The kept units of a text in order, without white space at the ends. A space goes between units that would
/// otherwise become one word, and a semicolon between numbers that would read as one: *1 of 200* without its *of*
/// is not *1 200*.
#[must_use]
pub fn left(text: &str, ends: &[usize], units: &[Range<usize>], kept: &[bool]) -> String {
    let end = |token: usize| token.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    // A mark may be a word where it stands, but join its new neighbours: units near a gap are checked, too.
    let (mut out, mut last, mut gap) = (String::new(), 0, None);
    for (unit, _) in units.iter().zip(kept).filter(|(_, kept)| **kept) {
        let (from, to) = (end(unit.start), end(unit.end));
        let part = text.get(from..to).unwrap_or_default();
        if from != last {
            gap = Some(out.len());
        }
        if gap.is_some_and(|gap| out[gap..].chars().nth(NEIGHBOURS).is_none()) && merges(&out, part) {
            out.push(' ');
        }
        // Digits that are together in the text are one number there.
        if from != last && is_one_number(&out, part) {
            out.insert(out.trim_end().len(), ';');
            // The gap is after it.
            gap = gap.map(|gap| gap + 1);
        }
        out.push_str(part);
        last = to;
    }
    out.trim().to_owned()
}

/// Characters that decide if two texts become one word when joined.
const NEIGHBOURS: usize = 8;

/// The end of the left text and the beginning of the right one.
fn neighbours<'a>(left: &'a str, right: &'a str) -> (&'a str, &'a str) {
    let before = left.char_indices().rev().nth(NEIGHBOURS - 1).map_or(0, |(at, _)| at);
    let after = right.char_indices().nth(NEIGHBOURS).map_or(right.len(), |(at, _)| at);
    (&left[before..], &right[..after])
}

/// True if three digits follow at most three after one space: they would read as one number.
fn is_one_number(left: &str, right: &str) -> bool {
    let (head, tail) = (left.trim_end(), right.trim_start());
    let space = format!("{}{}", &left[head.len()..], &right[..right.len() - tail.len()]);
    let before = head.chars().rev().take_while(|digit| digit.is_numeric()).count();
    let word = head.chars().rev().nth(before).is_some_and(|mark| mark.is_ascii_alphanumeric() || ".,".contains(mark));
    let after = tail.chars().take_while(|digit| digit.is_numeric()).count();
    matches!(&*space, " " | "\u{a0}" | "\u{2009}") && (1..=3).contains(&before) && !word && after == 3
}

fn merges(left: &str, right: &str) -> bool {
    let (left, right) = neighbours(left, right);
    let blank = left.ends_with(char::is_whitespace) || right.starts_with(char::is_whitespace);
    let both = format!("{left}{right}");
    !blank && !left.is_empty() && !words(&both).contains(&left.len())
}

fn phrases(text: &str) -> Vec<Range<usize>> {
    let breaks = words(text);
    let starts = std::iter::once(0).chain(breaks.iter().copied());
    let atoms: Vec<&str> = starts
        .zip(breaks.iter().copied().chain(std::iter::once(text.len())))
        .map(|(start, end)| text[start..end].trim_end())
        .collect();
    let is_mark = |atom: &str| !atom.contains(char::is_alphanumeric);
    let spaced = |at: usize| text[..breaks[at - 1]].ends_with(char::is_whitespace);
    // A mark after white space opens, another one closes.
    let opens = |at: usize| at == 0 || spaced(at);
    let chosen = (1..atoms.len()).filter(|&at| {
        let (before, here) = (atoms[at - 1].trim_start(), atoms[at].trim_start());
        match (is_mark(before), is_mark(here)) {
            (_, true) => opens(at),
            // "Yahoo!Mail" and "a=b" are not clauses.
            (true, false) => !opens(at - 1) && (spaced(at) || !before.ends_with(is_inner)),
            (false, false) => is_function_word(here) && !is_function_word(before),
        }
    });
    borders(text, chosen.map(|at| breaks[at - 1]).collect())
}

/// Most words of a name.
const LONGEST_NAME: usize = 5;

/// The beginnings of words except the first.
fn words(text: &str) -> Vec<usize> {
    let pieces: Vec<(usize, &str)> = text.split_word_bound_indices().collect();
    let (mut breaks, mut name, mut address) = (Vec::new(), 1, 0);
    for at in 1..pieces.len() {
        if is_blank(pieces[at].1) {
            continue;
        }
        if at >= address && begins_address(&pieces, at) {
            address = end_of_address(&pieces, at);
        }
        if at < address {
            continue;
        }
        let spaced = is_blank(pieces[at - 1].1);
        if spaced && name < LONGEST_NAME && (continues_name(&pieces, at) || continues_number(&pieces, at)) {
            name += 1;
        } else if spaced || !is_joined(&pieces, at) {
            name = 1;
            breaks.push(pieces[at].0);
        }
    }
    breaks
}

/// True if a piece is the first after `://`, after `www.example.org`, or after the slash of `example.org/`.
fn begins_address(pieces: &[(usize, &str)], at: usize) -> bool {
    let piece = |back: usize| at.checked_sub(back).map_or("", |index| pieces[index].1);
    let scheme = is_word(piece(4)) && (1..=3).all(|back| piece(back) == [":", "/", "/"][3 - back]);
    let domain = || piece(1) == "/" && piece(2).contains('.') && piece(2).ends_with(char::is_alphabetic);
    scheme || piece(1).starts_with("www.") || domain()
}

/// The piece after an address. White space, quotes, brackets and letters outside ASCII end it. Marks before the end
/// belong to the sentence.
fn end_of_address(pieces: &[(usize, &str)], at: usize) -> usize {
    let within = |(_, piece): &&(usize, &str)| {
        piece.is_ascii()
            && !is_blank(piece)
            && !matches!(*piece, "\"" | "<" | ">" | "`" | "(" | ")" | "[" | "]" | "{" | "}" | "|")
    };
    let length = pieces[at..].iter().take_while(within).count();
    let is_part = |(_, piece): &(usize, &str)| is_word(piece) || matches!(*piece, "/" | "=" | "#" | "-" | "_");
    pieces[at..at + length].iter().rposition(is_part).map_or(at, |last| at + last + 1)
}

fn is_blank(piece: &str) -> bool {
    piece.chars().all(char::is_whitespace)
}

fn is_word(piece: &str) -> bool {
    piece.starts_with(char::is_alphanumeric)
}

fn is_number(piece: &str) -> bool {
    piece.starts_with(char::is_numeric)
}

/// Digits above or below the line, and fractions: `10⁶`, `CO₂`, `1½`. They have no word-break class, so each is a
/// separate piece.
fn is_raised(piece: &str) -> bool {
    piece.chars().next().is_some_and(|first| first.is_numeric() && first.to_digit(10).is_none())
}

/// True if a piece joins words on both sides of it.
fn is_joiner(piece: &str) -> bool {
    matches!(
        piece,
        "-" | "\u{207a}"
            | "\u{207b}"
            | "\u{b7}"
            | "\u{22c5}"
            | "\u{2010}"
            | "\u{2011}"
            | "\u{2013}"
            | "\u{2212}"
            | "'"
            | "\u{2019}"
            | "."
            | ","
            | "/"
            | "&"
            | "@"
            | ":"
            | "_"
            | "^"
            | "+"
            | "\u{b1}"
            | "\u{d7}"
    )
}

/// Marks that end a clause or join two words of a name or a formula: `Yahoo!Mail`, `x!=y`, `a=b`.
fn is_inner(mark: char) -> bool {
    matches!(mark, '!' | '?' | '=' | '&')
}

fn is_currency(piece: &str) -> bool {
    matches!(piece, "$" | "\u{20ac}" | "\u{a3}" | "\u{a5}" | "\u{20b9}")
}

fn is_comparison(piece: &str) -> bool {
    matches!(piece, "<" | ">" | "~" | "\u{2264}" | "\u{2265}" | "\u{2248}")
}

/// True if a piece belongs to the number after it, whatever precedes it.
fn is_firm_mark(piece: &str) -> bool {
    is_currency(piece) || is_comparison(piece) || piece == "\u{b1}"
}

/// True if a piece belongs to the number after it unless a word precedes it.
fn is_number_mark(piece: &str) -> bool {
    is_firm_mark(piece) || matches!(piece, "-" | "\u{2013}" | "\u{2212}" | "+" | "." | "#")
}

/// A sign after a number that belongs to the number.
fn is_unit_sign(piece: &str) -> bool {
    matches!(piece, "%" | "\u{2030}" | "\u{b0}") || is_currency(piece)
}

/// Most joiners in a row: `://`. As many marks may precede a number: `<-$5`.
const MOST_JOINERS: usize = 3;

/// True if a piece directly after another is one word with it.
fn is_joined(pieces: &[(usize, &str)], at: usize) -> bool {
    let piece = |index: usize| pieces.get(index).map_or("", |(_, piece)| *piece);
    let (before, here) = (piece(at - 1), piece(at));
    // The piece before a sequence of one kind that ends with `before`.
    let behind = |kind: fn(&str) -> bool| {
        let alike = (1..=MOST_JOINERS).take_while(|back| *back <= at && kind(piece(at - back))).count();
        at.checked_sub(1 + alike).map_or("", piece)
    };
    // The piece after a sequence of one kind that begins with `here`.
    let ahead = |kind: fn(&str) -> bool| {
        let alike = (0..MOST_JOINERS).take_while(|on| kind(piece(at + on))).count();
        piece(at + alike)
    };
    let word_before = || is_word(behind(is_joiner));
    let is_firm = || {
        let mut marks = (1..=MOST_JOINERS.min(at)).map(|back| piece(at - back)).take_while(|mark| is_number_mark(mark));
        marks.any(is_firm_mark)
    };
    let marked = || {
        is_number_mark(before) && is_number(ahead(is_number_mark)) && (is_firm() || !is_word(behind(is_number_mark)))
    };
    // `C++`, `18+` and `C#`.
    let trailing = || match here {
        "+" => is_word(behind(|mark| mark == "+")),
        "#" => before.ends_with(char::is_alphabetic),
        _ => false,
    };
    let inner = |piece: &str| piece.starts_with(is_inner);
    let both = |left: &str, right: &str| [left, right].iter().all(|word| is_word(word) && word.is_ascii());
    (is_raised(here) && is_word(before))
        || (inner(here) && both(behind(inner), ahead(inner)))
        || (inner(before) && both(behind(inner), here))
        || (is_raised(before) && is_word(here))
        || (is_joiner(here) && word_before() && is_word(ahead(is_joiner)))
        || (is_word(here) && is_joiner(before) && word_before())
        || (is_unit_sign(here) && before.ends_with(char::is_numeric))
        // `US$5`.
        || (is_currency(here) && is_word(before) && is_number(piece(at + 1)))
        || marked()
        || trailing()
        || (here == "." && is_initial(before) && piece(at + 1) == " " && piece(at + 2).starts_with(char::is_uppercase))
}

/// True if a piece after one space continues a number: three digits after at most three, a per cent or currency
/// sign, or the number after a comparison.
fn continues_number(pieces: &[(usize, &str)], at: usize) -> bool {
    let piece = |back: usize| at.checked_sub(back).map_or("", |index| pieces[index].1);
    let (before, here) = (piece(2), piece(0));
    let digits = |text: &str| text.chars().take_while(|digit| digit.is_numeric()).count();
    let head = (1..=3).contains(&digits(before)) && before.chars().all(char::is_numeric);
    let next = pieces.get(at + 1).map_or("", |(_, next)| next);
    let sign = is_unit_sign(here) && !is_number(next);
    // `p < .05`: without its sign the number would mean something else.
    let compared = is_comparison(before) && (is_number(here) || (is_number_mark(here) && is_number(next)));
    matches!(piece(1), " " | "\u{a0}" | "\u{2009}")
        && ((head && digits(here) == 3) || (sign && before.ends_with(char::is_numeric)) || compared)
}

fn is_initial(piece: &str) -> bool {
    piece.chars().count() == 1 && piece.starts_with(char::is_uppercase)
}

/// True if a piece after one space continues a name: a capitalised word or a number after a capitalised word, or
/// after an initial with its dot.
fn continues_name(pieces: &[(usize, &str)], at: usize) -> bool {
    let piece = |back: usize| at.checked_sub(back).map_or("", |index| pieces[index].1);
    let named = |word: &str| word.starts_with(char::is_uppercase) && !is_function_word(word);
    let here = piece(0);
    let initial = piece(2) == "." && is_initial(piece(3));
    piece(1) == " "
        && ((named(piece(2)) && (named(here) || here.starts_with(char::is_numeric))) || (initial && named(here)))
}

#[cfg(test)]
mod tests;
