//! The ends of sentences.
//!
//! A line end ends a sentence. So does a stop, together with the stops, closing quotes and brackets, signs of
//! emphasis and note marks (`[3]`, `¹`) that touch it, if all of these hold:
//!
//! - White space follows. The stops of ASCII and the ellipsis also occur inside addresses, names, numbers and code
//!   (`example.org/find?line=7`, `Yahoo!Mail`, `x!=y`, `3.14`). Other stops (`。`, `؟`, `।`) need no white space,
//!   and neither do ASCII stops between Chinese or Japanese characters.
//! - A letter or a digit follows on the line, without a comma or similar mark before it, and the next word is not
//!   in lower case, unless the text has no capitals. Stops that need no white space need no capital either.
//! - The full stop does not belong to an abbreviation, an initial or the mark of a list item ("2. Add water").
//!
//! An abbreviation that may also end a sentence ("Inc.", "U.S.", "a.m.") ends one if a capitalised function word
//! follows: "He works at Apple Inc. | The firm is large".

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// Abbreviations, in lower case, that never end a sentence.
const WITHIN: &[&str] = &[
    "mr", "mrs", "ms", "mx", "dr", "prof", "messrs", "mme", "mlle", "sra", "srta", "gen", "col", "capt", "cmdr", "lt",
    "sgt", "cpl", "maj", "adm", "rev", "hon", "gov", "sen", "rep", "reps", "pres", "approx", "ca", "cf", "viz", "vs",
    "e.g", "i.e", "eg", "ie",
];

/// Abbreviations that end a sentence if a capitalised function word follows. Abbreviations with a dot inside (`u.s`) are recognised
/// by the dot.
const MAY_END: &[&str] = &[
    "inc", "ltd", "co", "corp", "bros", "jr", "sr", "al", "st", "mt", "ft", "ave", "blvd", "rd", "dept", "univ",
    "assn", "est", "min", "max", "avg", "misc", "incl", "excl", "resp", "esp", "ed", "eds", "trans", "esq", "ariz",
    "calif", "colo", "conn", "fla", "ky", "mich", "minn", "neb", "nev", "okla", "penn", "tenn", "tex", "va", "vt",
    "wis", "wyo",
];

/// Abbreviations after which a sentence continues before a number or a label ("No. 1", "Mar. 3", "Art. IV", "Fig.
/// A"). They are also words.
const BEFORE_NUMBERS: &[&str] = &[
    "no", "nos", "nr", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "p", "pp",
    "art", "arts", "ch", "chap", "op", "sec", "secs", "eq", "eqs", "ref", "refs", "tab", "par", "para", "pt", "bd",
    "app", "ex", "fig", "figs", "vol", "vols", "n\u{fa}m",
];

/// Words other than function words that often begin a sentence.
const STARTERS: &str = "however there then here what why how some many most both even despite though thus \
                        meanwhile moreover instead according another each all also our my your later today now \
                        others nobody following originally initially eventually finally recently currently";

/// Bytes of the longest of these words.
const LONGEST_STARTER: usize = 10;

/// Most characters of an abbreviation.
const LONGEST_WORD: usize = 10;

/// Most bytes between the brackets of a note mark: `[citation needed]`.
const LONGEST_NOTE: usize = 24;

/// Most bytes of the mark of a list item, with the signs around it: `### **12.**`.
const LONGEST_MARK: usize = 24;

/// The white space between the sentences of a text, as byte ranges.
#[must_use]
pub fn sentences(text: &str) -> Vec<Range<usize>> {
    let has_case = text.contains(char::is_uppercase);
    // `start` is the beginning of the sentence, `lettered` is true if it has a letter or a digit.
    let (mut breaks, mut start, mut lettered, mut at) = (Vec::new(), 0, false, 0);
    while let Some(first) = text[at..].chars().next() {
        let stop = at;
        at += first.len_utf8();
        if is_line_end(first) {
            breaks.push(at);
            (start, lettered) = (at, false);
        } else if is_soft(first) || is_firm(first) {
            let ending = Ending::new(text, stop);
            at = ending.end;
            if lettered && ending.ends_sentence(text, start, has_case) {
                breaks.push(at);
                (start, lettered) = (at, false);
            }
        } else {
            lettered |= first.is_alphanumeric();
        }
    }
    borders(text, breaks)
}

/// A stop with the signs that touch it.
struct Ending {
    /// Byte of the first stop.
    stop: usize,
    /// End of the last sign that touches it.
    end: usize,
    /// True if one of the stops needs no white space after it.
    firm: bool,
    /// True if this is a single full stop.
    bare: bool,
    /// True if a quote or bracket closes after the stop.
    closes: bool,
}

impl Ending {
    fn new(text: &str, stop: usize) -> Self {
        let (mut end, mut firm, mut closes) = (stop, false, false);
        while let Some(sign) = text[end..].chars().next() {
            if is_firm(sign) {
                firm = true;
            } else if is_closing(sign) || (!firm && is_opening_or_closing(sign)) {
                closes = true;
            } else if let Some(length) = note(&text[end..]) {
                end += length;
                continue;
            } else if !is_soft(sign) && !is_raised_digit(sign) {
                break;
            }
            end += sign.len_utf8();
        }
        Self { stop, end, firm, bare: &text[stop..end] == ".", closes }
    }

    /// `start` is the beginning of the sentence.
    fn ends_sentence(&self, text: &str, start: usize, has_case: bool) -> bool {
        let (before, after) = (&text[..self.stop], &text[self.end..]);
        let rest = after.trim_start_matches(|space: char| space.is_whitespace() && !is_line_end(space));
        let Some(next) = next_sentence(rest) else { return false };
        let spaced = rest.len() < after.len();
        if self.firm {
            // "「雨ですか？」と聞いた": a particle continues after a quotation.
            return spaced || !(self.closes && after.starts_with(is_hiragana));
        }
        if !spaced {
            return before.ends_with(is_chinese_or_japanese) && next.starts_with(is_chinese_or_japanese);
        }
        let tagged = rest.starts_with(['#', '@']);
        let goes_on = (has_case && !tagged && begins_in_lower_case(next)) || before.ends_with(is_thai_or_lao);
        // "Steps: 1. Mix flour."
        let mut near = before[start..].char_indices().rev().take(LONGEST_MARK);
        let colon = near.find(|(_, sign)| *sign == ':').map(|(at, _)| start + at + 1);
        let colon = colon.filter(|at| text[*at..].starts_with(char::is_whitespace)).unwrap_or(start);
        let is_mark = [start, colon].iter().any(|from| is_item_mark(&text[*from..self.end]));
        !(goes_on || is_mark || (self.bare && is_abbreviated(&before[start..], rest, next)))
    }
}

/// The text from the first letter or digit on, if it can begin a sentence. `None` if there is no such character on
/// the line, or if another stop comes first, which then decides.
fn next_sentence(rest: &str) -> Option<&str> {
    if rest.starts_with([
        ',', ';', ':', '=', '+', '/', '&', '|', '%', '\u{60c}', '\u{61b}', '\u{3001}', '\u{ff0c}', '\u{ff1a}',
        '\u{ff1b}',
    ]) {
        return None;
    }
    let decides =
        |(_, sign): &(usize, char)| sign.is_alphanumeric() || is_line_end(*sign) || is_soft(*sign) || is_firm(*sign);
    let (at, _) = rest.char_indices().find(decides)?;
    // ".5" and "...and" begin with stops.
    let word = rest[at..].trim_start_matches(['.', '\u{2026}']);
    word.starts_with(char::is_alphanumeric).then_some(word)
}

/// True if the first word is in lower case ("iPhone" is not) and is not the mark of a list item before a capital
/// ("b. Then").
fn begins_in_lower_case(next: &str) -> bool {
    let end = next.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(next.len());
    let (word, rest) = next.split_at(end);
    let behind = rest.strip_prefix(['.', ')']).unwrap_or_default();
    let capital = behind.starts_with(' ') && behind.trim_start().starts_with(char::is_uppercase);
    let is_item = capital && word.len() < LONGEST_MARK && is_item_mark(&next[..=end]);
    word.starts_with(char::is_lowercase) && !word.contains(char::is_uppercase) && !is_item
}

/// True if the full stop after `before`, the sentence up to it, belongs to an abbreviation or an initial. `rest` is
/// the text after the white space, `next` the same from the first letter or digit on.
fn is_abbreviated(before: &str, rest: &str, next: &str) -> bool {
    let is_part = |(_, letter): &(usize, char)| letter.is_alphanumeric() || *letter == '.';
    let start = before.char_indices().rev().take(LONGEST_WORD).take_while(is_part).last();
    let word = &before[start.map_or(before.len(), |(at, _)| at)..];
    if word.is_empty() || word.ends_with('.') || word.contains(char::is_numeric) {
        return false;
    }
    let lower = word.to_lowercase();
    let digit = rest.starts_with(|first: char| first.is_ascii_digit() || first == '#');
    if WITHIN.contains(&&*lower) || (BEFORE_NUMBERS.contains(&&*lower) && (digit || begins_with_label(next, &lower))) {
        return true;
    }
    let is_single = |text: &str| text.graphemes(true).nth(1).is_none();
    if is_single(word) && !word.starts_with(is_chinese_or_japanese) {
        let head = &before[..before.len() - word.len()];
        let starts = begins_with_starter(next);
        return if head.ends_with(['&', '/', '+']) {
            false // "R&B."
        } else if word.starts_with(char::is_lowercase) {
            // "p. 12", "(d. AD 43)", "Brown v. Board", "z. B.".
            let between = matches!(word, "c" | "v") && !starts && !head.trim_start().is_empty();
            digit || between || head.ends_with('(') || is_initial(next)
        } else {
            !starts
        };
    }
    // The parts of a domain ("mill.org") are longer.
    let dotted = word.contains('.') && word.split('.').all(|part| (1..=2).contains(&part.chars().count()));
    (dotted || MAY_END.contains(&&*lower)) && !begins_with_starter(next)
}

/// True if a text begins with a letter and a full stop.
fn is_initial(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(char::is_alphabetic) && letters.next() == Some('.')
}

/// True if a text begins with a Roman number or a single capital. "I" is a word, and after "no" so is "A".
fn begins_with_label(text: &str, behind: &str) -> bool {
    let end = text.find(|letter: char| !letter.is_alphabetic()).unwrap_or(text.len());
    let roman = end > 1 && text[..end].bytes().all(|letter| b"IVXLC".contains(&letter));
    roman
        || (end == 1 && behind != "no" && text.starts_with(|letter: char| letter.is_ascii_uppercase() && letter != 'I'))
}

/// True if a text begins with a capitalised word that often begins a sentence. Some are also names ("George F.
/// Will"), and so is a letter with a full stop ("S. A. Rowe").
fn begins_with_starter(text: &str) -> bool {
    let end = text.find(|letter: char| !letter.is_alphabetic()).unwrap_or(text.len());
    let word = &text[..end];
    let is_name = matches!(word, "An" | "Do" | "May" | "So" | "Will") || text[end..].starts_with('.');
    let starts = |word: &str| STARTERS.split(' ').any(|starter| starter == word);
    let known = || is_function_word(word) || word.len() <= LONGEST_STARTER && starts(&word.to_lowercase());
    word.starts_with(char::is_uppercase) && !is_name && known()
}

/// True if a text is the mark of a list item: "2.", "2)", "1.1.", "a.", "iv)", also in Markdown's bold or after its
/// signs.
#[must_use]
pub fn is_item_mark(text: &str) -> bool {
    if text.len() > LONGEST_MARK {
        return false;
    }
    let bare = text.trim().trim_matches(['*', '_', '#', '>', '-', '+', '\u{2022}', ' ']);
    let Some(mark) = bare.strip_suffix(['.', ')']) else { return false };
    let mark = mark.strip_prefix('(').unwrap_or(mark);
    let all = |part: &str, kind: fn(&u8) -> bool| part.bytes().all(|byte| kind(&byte));
    let is_number = |part: &str| (1..=3).contains(&part.len()) && all(part, u8::is_ascii_digit);
    mark.split('.').all(is_number)
        || (mark.len() == 1 && all(mark, u8::is_ascii_alphabetic))
        || ((2..=4).contains(&mark.len()) && all(mark, |byte| b"ivxlIVXL".contains(byte)))
}

/// Offset of the text of a list item, after its mark. `None` for a sentence that does not begin with such a mark
/// ("A. Rowe" is a name), or that has nothing else.
#[must_use]
pub fn item_text(sentence: &str) -> Option<usize> {
    let spaces = sentence.match_indices(char::is_whitespace).map(|(at, _)| at);
    let end = spaces.take_while(|at| *at <= LONGEST_MARK).find(|at| is_item_mark(&sentence[..*at]))?;
    let rest = sentence[end..].trim_start();
    let next = &rest[rest.find(char::is_alphanumeric)?..];
    let mark = sentence[..end].trim_matches(|sign: char| !sign.is_alphanumeric() && sign != '.').strip_suffix('.');
    let is_name = mark.is_some_and(|letter| is_abbreviated(letter, rest, next));
    (!is_name).then_some(sentence.len() - rest.len())
}

/// The length of a note mark at the beginning of a text: `[3]`, `[citation needed]`.
fn note(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let close = inner.bytes().take(LONGEST_NOTE).position(|byte| matches!(byte, b'[' | b']' | b'\n'))?;
    (close > 0 && inner.as_bytes()[close] == b']').then_some(close + 2)
}

fn is_line_end(sign: char) -> bool {
    matches!(sign, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Stops that need white space after them.
fn is_soft(sign: char) -> bool {
    matches!(
        sign,
        '.' | '?'
            | '!'
            | '\u{fe52}'
            | '\u{fe56}'
            | '\u{fe57}'
            | '\u{ff0e}'
            | '\u{2026}'
            | '\u{203c}'
            | '\u{203d}'
            | '\u{2047}'..='\u{2049}'
    )
}

/// Stops that only occur at the end of sentences: those of Unicode's `Sentence_Terminal` in living scripts that are
/// not soft.
fn is_firm(sign: char) -> bool {
    matches!(
        sign,
        '\u{589}'
            | '\u{61d}'..='\u{61f}'
            | '\u{6d4}'
            | '\u{700}'..='\u{702}'
            | '\u{7f9}'
            | '\u{964}'
            | '\u{965}'
            | '\u{104a}'
            | '\u{104b}'
            | '\u{1362}'
            | '\u{1367}'
            | '\u{1368}'
            | '\u{166e}'
            | '\u{17d4}'
            | '\u{17d5}'
            | '\u{1803}'
            | '\u{1809}'
            | '\u{1944}'
            | '\u{1945}'
            | '\u{1aa8}'..='\u{1aab}'
            | '\u{1b5a}'
            | '\u{1b5b}'
            | '\u{1b5e}'
            | '\u{1b5f}'
            | '\u{1c3b}'
            | '\u{1c3c}'
            | '\u{1c7e}'
            | '\u{1c7f}'
            | '\u{3002}'
            | '\u{a4ff}'
            | '\u{a60e}'
            | '\u{a60f}'
            | '\u{a6f3}'
            | '\u{a6f7}'
            | '\u{a8ce}'
            | '\u{a8cf}'
            | '\u{a92f}'
            | '\u{a9c8}'
            | '\u{a9c9}'
            | '\u{aa5d}'..='\u{aa5f}'
            | '\u{abeb}'
            | '\u{fe12}'
            | '\u{fe15}'
            | '\u{fe16}'
            | '\u{ff01}'
            | '\u{ff1f}'
            | '\u{ff61}'
    )
}

/// Closing quotes and brackets, and signs of emphasis.
fn is_closing(sign: char) -> bool {
    matches!(
        sign,
        ')' | ']'
            | '}'
            | '"'
            | '\''
            | '*'
            | '_'
            | '~'
            | '`'
            | '\u{bb}'
            | '\u{2019}'
            | '\u{201d}'
            | '\u{203a}'
            | '\u{3009}'
            | '\u{300b}'
            | '\u{300d}'
            | '\u{300f}'
            | '\u{3011}'
            | '\u{3015}'
            | '\u{ff02}'
            | '\u{ff09}'
            | '\u{ff3d}'
            | '\u{ff5d}'
            | '\u{ff63}'
    )
}

/// Quotes that open in English and close in German, or the other way round.
fn is_opening_or_closing(sign: char) -> bool {
    matches!(sign, '\u{201c}' | '\u{2018}' | '\u{ab}' | '\u{2039}')
}

fn is_raised_digit(sign: char) -> bool {
    matches!(sign, '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{2070}' | '\u{2074}'..='\u{2079}')
}

fn is_hiragana(letter: char) -> bool {
    matches!(letter, '\u{3041}'..='\u{309f}')
}

fn is_chinese_or_japanese(letter: char) -> bool {
    matches!(
        letter,
        '\u{3005}'..='\u{3007}'
            | '\u{3041}'..='\u{30ff}'
            | '\u{3400}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff66}'..='\u{ff9f}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

/// Thai and Lao use the full stop only in abbreviations.
fn is_thai_or_lao(letter: char) -> bool {
    matches!(letter, '\u{e00}'..='\u{eff}')
}

/// White space at which a text may be cut, as byte ranges; empty ranges where there is none. Each run of white
/// space comes once, and none at the beginning.
#[must_use]
pub fn borders(text: &str, breaks: Vec<usize>) -> Vec<Range<usize>> {
    let (mut borders, mut covered) = (Vec::new(), 0);
    for at in breaks {
        if at > covered {
            let (before, after) = text.split_at(at);
            let start = before.trim_end().len();
            covered = text.len() - after.trim_start().len();
            if start > 0 && covered < text.len() {
                borders.push(start..covered);
            }
        }
    }
    borders
}

/// English function words: articles, prepositions, pronouns, conjunctions and auxiliaries.
const FUNCTION_WORDS: &[&str] = &[
    "a", "an", "the", "this", "that", "these", "those", "of", "in", "on", "at", "by", "to", "from", "with", "without",
    "for", "into", "onto", "over", "under", "above", "below", "between", "among", "through", "during", "before",
    "after", "until", "since", "about", "against", "as", "and", "or", "but", "nor", "so", "yet", "if", "when", "while",
    "where", "which", "who", "whom", "whose", "because", "although", "than", "is", "are", "was", "were", "be", "been",
    "being", "has", "have", "had", "do", "does", "did", "will", "would", "can", "could", "may", "might", "must",
    "shall", "should", "it", "its", "he", "she", "they", "his", "her", "their", "we", "i", "you", "not",
];

/// True for an English function word in any case.
#[must_use]
pub fn is_function_word(word: &str) -> bool {
    // The longest has eight letters.
    word.len() <= 8 && FUNCTION_WORDS.contains(&word.to_lowercase().as_str())
}
