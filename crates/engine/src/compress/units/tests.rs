use proptest::prelude::*;

use super::*;

/// Tokens of these lengths in bytes, even if that cuts a character.
fn pieces(text: &str, lengths: &[usize]) -> Vec<Vec<u8>> {
    let (mut rest, mut pieces) = (text.as_bytes(), Vec::new());
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).clamp(1, rest.len()));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

/// The units of a text whose tokens are its bytes.
fn parts(text: &str, unit: CompressionUnit) -> Vec<String> {
    let ends = ends(text, &pieces(text, &[1])).unwrap();
    let part = |range: Range<usize>| text[range.start..range.end].to_owned();
    units(text, &ends, unit).into_iter().map(part).collect()
}

#[test]
fn sentences_end_where_they_end() {
    let text = " Dr. J. Smith of the U.S. Navy left. He paid $3.50! Why?\r\nNobody knows... Then it rained.";
    assert_eq!(
        parts(text, CompressionUnit::Sentence),
        [" Dr. J. Smith of the U.S. Navy left.", " He paid $3.50!", " Why?", "\r\nNobody knows...", " Then it rained."]
    );
    assert_eq!(parts(" One", CompressionUnit::Sentence), [" One"]);
    assert_eq!(
        parts(" \u{4e00}\u{3002}\u{4e8c}\u{3002}", CompressionUnit::Sentence),
        [" \u{4e00}\u{3002}", "\u{4e8c}\u{3002}"]
    );
}

/// A domain or a capital at the end of a sentence counted as an abbreviation, so the sentence was joined to the
/// next.
#[test]
fn a_domain_or_a_capital_may_end_a_sentence() {
    let ends = |text: &str| parts(text, CompressionUnit::Sentence).len();
    assert_eq!(ends(" The mill is on harrow.org. It was built in 1871."), 2);
    for text in
        [" He took vitamin C. It helped.", " He took vitamin C. It's good.", " He took vitamin C. \"It helps.\""]
    {
        assert_eq!(ends(text), 2, "{text}");
    }
    for text in [" He left it... Then it rained.", " It was built in 1871... Then it burnt."] {
        assert_eq!(ends(text), 2, "{text}");
    }
    assert_eq!(ends(" She met J. Voss, Ph.D. Voss left at 9 a.m. sharp."), 1);
    for text in
        [" Harry S. A. Rowe came.", " A book by S. A. Rowe.", " George F. Will wrote it.", " A letter to J. Voss."]
    {
        assert_eq!(ends(text), 1, "{text}");
    }
}

/// Dates and numbers were cut in two, and "11, 2001." was kept without the event.
#[test]
fn a_month_or_a_number_sign_goes_on() {
    let ends = |text: &str| parts(text, CompressionUnit::Sentence).len();
    for text in [
        " On Sept. 11, 2001.",
        " On Feb. 2, 2014.",
        " On Jan. 3.",
        " Warner Bros. Pictures made it.",
        " The No. 1 Album.",
    ] {
        assert_eq!(ends(text), 1, "{text}");
    }
    for text in [
        " Was it so? No. It was not.",
        " He came on 3 Mar. It rained.",
        " It closed on 4 Dec. Nobody came.",
        " He left the U.S.. It rained.",
    ] {
        assert_eq!(ends(text), if text.contains("so?") { 3 } else { 2 }, "{text}");
    }
}

#[test]
fn phrases_end_at_punctuation_and_before_function_words() {
    let text =
        " The looms of Harrowgate were driven by water from the River Senn, led over a weir (of oak) above the town.";
    assert_eq!(
        parts(text, CompressionUnit::Phrase),
        [
            " The looms",
            " of Harrowgate",
            " were driven",
            " by water",
            " from the River Senn,",
            " led",
            " over a weir",
            " (of oak)",
            " above the town."
        ]
    );
}

#[test]
fn words_numbers_and_names_are_whole() {
    let text = " In March 1871, J. K. Rowe of New York paid -3.5% (about \u{20ac}1,200.50) for a well-known URL: http://a.b/c-d, didn't she?";
    assert_eq!(
        parts(text, CompressionUnit::Token),
        [
            " In",
            " March 1871",
            ",",
            " J. K. Rowe",
            " of",
            " New York",
            " paid",
            " -3.5%",
            " (",
            "about",
            " \u{20ac}1,200.50",
            ")",
            " for",
            " a",
            " well-known",
            " URL",
            ":",
            " http://a.b/c-d",
            ",",
            " didn't",
            " she",
            "?"
        ]
    );
    let title = " One Two Three Four Five Six";
    assert_eq!(
        parts(title, CompressionUnit::Token),
        [" One Two Three Four Five", " Six"],
        "a name has five words at most"
    );
}

/// Marks inside an address or a name ended sentences and phrases, and counted as words.
#[test]
fn marks_inside_addresses_and_names_end_nothing() {
    for name in [
        "https://example.org/find?line=7&day=mon",
        "www.example.org/find?line=7&day=mon",
        "example.org/find?line=7!",
        "Yahoo!Mail",
        "x!=y",
        "a?b:c",
        "k=v",
    ] {
        for unit in [CompressionUnit::Sentence, CompressionUnit::Phrase, CompressionUnit::Token] {
            let text = format!(" see {name} and others. It is free.");
            let parts = parts(&text, unit);
            let bare = name.trim_end_matches('!');
            assert!(parts.iter().any(|part| part.contains(bare)), "{unit:?} of {name}: {parts:?}");
            assert_eq!(parts.concat(), text);
            assert!(unit != CompressionUnit::Sentence || parts.len() == 2, "{parts:?}");
        }
    }
    assert_eq!(parts(" \u{597d}\u{5417}?\u{6211}", CompressionUnit::Token), [" \u{597d}", "\u{5417}", "?", "\u{6211}"]);
    assert_eq!(parts(" Wait! Go, now", CompressionUnit::Phrase), [" Wait!", " Go,", " now"]);
}

/// Each literal is one unit, whatever surrounds it, so that it is kept or dropped as a whole.
#[test]
fn a_number_is_never_cut_to_another_one() {
    let literals = [
        ".05",
        "-.05",
        "-5",
        "\u{2212}5",
        "-0.3",
        "+1.5",
        "-$5",
        "$-5",
        "$.50",
        "10^6",
        "10^-6",
        "10\u{2076}",
        "10\u{207b}\u{2076}",
        "1\u{bd}",
        "m\u{b2}",
        "CO\u{2082}",
        "H\u{2082}O",
        "3\u{b7}10\u{2078}",
        "3\u{d7}10^8",
        "\u{b1}5",
        "5\u{b1}2",
        "<5",
        "<.05",
        "~5",
        ">-5",
        "\u{2264}0.1",
        "<5%",
        "1 200 000",
        "1\u{a0}200\u{a0}000",
        "12 345.50",
        "-1 200",
        "20 %",
        "5\u{20ac}",
        "US$5",
        "18+",
        "C++",
        "C++17",
        "C#",
        "#5",
        "1e-5",
        "1,200.50",
        "7:30",
        "3/4",
        "< .05",
        "> -5",
        "http://a.b/c?id=42",
        "https://a.b:8080/c/d%20e~f?x=1&y=2#z",
        "ftp://a.b/",
    ];
    for literal in literals {
        for text in [" p = X of q", " (X)", " [X, more]", " [0.2; X]", " X", " so X.", " \u{201c}X\u{201d}"] {
            let text = text.replace('X', literal);
            let parts = parts(&text, CompressionUnit::Token);
            assert!(parts.iter().any(|part| part.trim() == literal), "{literal} of {text:?}: {parts:?}");
        }
    }
    assert_eq!(parts(" p<.05", CompressionUnit::Token), [" p", "<.05"]);
    assert_eq!(parts(" see http://a.b/c?d, or", CompressionUnit::Token), [" see", " http://a.b/c?d", ",", " or"]);
    for (text, address) in [
        ("\u{898b}http://a.b/c\u{3002}\u{5f8c}\u{9762}", "http://a.b/c"),
        (" {\"url\":\"http://a.b\",\"title\":\"x\"}", "http://a.b"),
        (" http://a.b/c\u{2014}which is", "http://a.b/c"),
    ] {
        let parts = parts(text, CompressionUnit::Token);
        assert!(
            parts.iter().any(|part| part.contains(address)) && parts.iter().all(|part| part.len() < 20),
            "{parts:?}"
        );
    }
    // Each would be followed to the end of the text.
    assert!(!parts(&"a://".repeat(20_000), CompressionUnit::Token).is_empty());
    assert_eq!(parts(" 1984 100 200", CompressionUnit::Token), [" 1984", " 100 200"], "a year has four digits");
    assert_eq!(
        parts(" a 5 $6", CompressionUnit::Token),
        [" a", " 5", " $6"],
        "the sign belongs to the number behind it"
    );
    assert_eq!(parts(" 1 100 100 100 100 100", CompressionUnit::Token).len(), 2, "five groups at most");
    assert_eq!(parts(" end. 5 more - 6", CompressionUnit::Token), [" end", ".", " 5", " more", " -", " 6"]);
}

/// The position of the gap was before the inserted semicolon, inside a wide space.
#[test]
fn a_semicolon_between_numbers_moves_the_gap() {
    let text = "1\u{2009}of 200x";
    let (ends, units) = ([4, 7, 10, 11], [0..1, 1..2, 2..3, 3..4]);
    assert_eq!(left(text, &ends, &units, &[true, false, true, true]), "1;\u{2009}200 x");
}

/// Time must not grow with the square of the length.
#[test]
fn long_hostile_texts_are_read_in_one_pass() {
    let parts = [
        "1A.\u{3042}",
        "1A.\u{20ac}The",
        ")",
        " )",
        "\u{201d}",
        " ",
        "\u{a0}\u{300b}",
        ".",
        ". ",
        ".)",
        " .",
        "\u{1f600}",
        "\u{3002}",
        "[",
        ".[",
        ".[1]",
        "1. ",
        "a: 1. ",
        "a. B",
        "J. ",
        "U.S. ",
        "\n",
        ". \n",
        "?\u{300d}",
    ];
    for part in parts {
        let text = format!("a.{} b. C", part.repeat(200_000));
        let borders = sentences(&text);
        assert!(borders.windows(2).all(|pair| pair[0].end <= pair[1].start), "{part:?}");
    }
}

#[test]
fn scripts_without_spaces_are_cut_between_characters_and_emoji_are_not_cut() {
    assert_eq!(parts(" \u{6771}\u{4eac}\u{3002}", CompressionUnit::Token), [" \u{6771}", "\u{4eac}", "\u{3002}"]);
    let family = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}";
    assert_eq!(
        parts(&format!(" a {family} \u{1f1e9}\u{1f1ea}"), CompressionUnit::Token),
        [" a".to_owned(), format!(" {family}"), " \u{1f1e9}\u{1f1ea}".to_owned()]
    );
}

#[test]
fn a_border_inside_a_token_is_none() {
    let text = " ab cd.";
    let ends = ends(text, &[b" a".to_vec(), b"b c".to_vec(), b"d.".to_vec()]).unwrap();
    assert_eq!(units(text, &ends, CompressionUnit::Token).len(), 1);
    let ends = super::ends(text, &[b" ab".to_vec(), b" cd.".to_vec()]).unwrap();
    assert_eq!(units(text, &ends, CompressionUnit::Token), [0..1, 1..2]);
    // A token that ends with the line break, like ".
    //
    // " in some vocabularies.
    let text = " A.\n\nB";
    let ends = super::ends(text, &[b" A".to_vec(), b".\n\n".to_vec(), b"B".to_vec()]).unwrap();
    assert_eq!(units(text, &ends, CompressionUnit::Sentence), [0..2, 2..3]);
}

#[test]
fn tokens_are_found_in_the_text_whatever_they_do_with_spaces() {
    let found = |text: &str, pieces: &[&str]| {
        ends(text, &pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect::<Vec<_>>())
    };
    assert_eq!(found(" a b", &["a", " b"]), Some(vec![2, 4]), "the first space is dropped");
    assert_eq!(found(" a .", &[" a", "."]), Some(vec![2, 4]), "as by a tokeniser that cleans up spaces");
    assert_eq!(found(" a", &[" ", " a"]), Some(vec![1, 2]), "a space is added");
    assert_eq!(found(" a ", &[" a"]), Some(vec![3]));
    assert_eq!(found(" a", &[" A"]), None);
    assert_eq!(found(" ab", &[" a"]), Some(vec![2]), "the first tokens of a text that was cut");
    assert_eq!(found(" ", &[]), None);
    let emoji = "\u{1f600}".as_bytes();
    assert_eq!(ends("\u{1f600}", &[emoji[..1].to_vec(), emoji[1..].to_vec()]), Some(vec![1, 4]));
}

#[test]
fn what_is_left_never_makes_a_new_word() {
    let text = " foo(bar)baz 3.x.5";
    let ends = ends(text, &pieces(text, &[1])).unwrap();
    let units = units(text, &ends, CompressionUnit::Token);
    let kept: Vec<bool> = units.iter().map(|unit| !["(", ")", "bar"].contains(&&text[unit.start..unit.end])).collect();
    assert_eq!(left(text, &ends, &units, &kept), "foo baz 3.x.5");
    assert_eq!(left(text, &ends, &units, &vec![true; units.len()]), text.trim());
    assert_eq!(left(text, &ends, &units, &vec![false; units.len()]), "");
}

/// `1 of 200` became `1 200`, a number that is not in the text.
#[test]
fn what_is_left_never_makes_a_new_number() {
    let without = |text: &str, dropped: &[&str]| {
        let text = format!(" {text}");
        let pieces: Vec<Vec<u8>> = text.split_inclusive([' ', '\n']).map(|piece| piece.as_bytes().to_vec()).collect();
        let ends = ends(&text, &pieces).unwrap();
        let units: Vec<_> = (0..ends.len()).map(|at| at..at + 1).collect();
        let kept: Vec<bool> =
            pieces.iter().map(|piece| !dropped.contains(&std::str::from_utf8(piece).unwrap().trim())).collect();
        left(&text, &ends, &units, &kept)
    };
    assert_eq!(without("only 1 of 200 mills", &["of"]), "only 1; 200 mills");
    assert_eq!(without("in 1871 of 200 mills", &["of"]), "in 1871 200 mills", "no group of digits");
    assert_eq!(without("all 1 200 mills", &["all"]), "1 200 mills", "it was one");
    assert_eq!(without("on 12 March 1871", &["March"]), "on 12 1871");
    assert_eq!(without("in Q3 of 200 mills", &["of"]), "in Q3 200 mills");
    assert_eq!(without("for 3.5 of 200 mills", &["of"]), "for 3.5 200 mills");
    assert_eq!(without("Score 3\nx 200 mills", &["x"]), "Score 3\n200 mills");
    let joined = |text: &str, kept: [bool; 3], ends: [usize; 3]| left(text, &ends, &[0..1, 1..2, 2..3], &kept);
    assert_eq!(joined("1(200", [true, false, true], [1, 2, 5]), "1; 200");
}

/// `'12` after another word is a mark and a number; after a number it would join that number.
#[test]
fn a_mark_near_a_gap_joins_nothing() {
    let units = [0..1, 1..2, 2..3, 3..4];
    assert_eq!(left("12 a '12", &[2, 5, 6, 8], &units, &[true, false, true, true]), "12' 12");
    assert_eq!(left("12 a '12", &[2, 5, 6, 8], &units, &[true; 4]), "12 a '12");
    assert_eq!(left("12 a '12", &[2, 5, 6, 8], &units, &[false, true, true, true]), "a '12");
}

fn words_of(text: &str) -> Vec<&str> {
    text.unicode_words().collect()
}

fn is_subsequence(short: &[&str], long: &[&str]) -> bool {
    let mut rest = long.iter();
    short.iter().all(|word| rest.any(|other| other == word))
}

proptest! {
    /// Texts with names, numbers, marks, CJK, emoji of several code points and line breaks, cut into tokens at any
    /// position.
    #[test]
    fn units_cover_the_text_and_what_is_left_is_words_of_it(
        parts in proptest::collection::vec(prop_oneof![
            Just("River "), Just("Senn"), Just(" the"), Just("12"), Just(".5"), Just(", "), Just(". "), Just("-"), Just("("),
            Just("\r\n"), Just("\u{3000}"), Just("\u{6771}"), Just("\u{30ab}"), Just("\u{1f468}\u{200d}\u{1f467}"), Just("e\u{301}"),
            Just("\u{1f1e9}\u{1f1ea}"), Just(" "), Just("'"), Just("%"), Just("J."),
        ], 1..30),
        lengths in proptest::collection::vec(1_usize..7, 1..6),
        mask in any::<u64>(),
    ) {
        let text = format!(" {}", parts.concat().trim());
        prop_assume!(text.len() > 1);
        let pieces = pieces(&text, &lengths);
        let ends = ends(&text, &pieces).unwrap();
        prop_assert_eq!(ends.len(), pieces.len());
        for unit in [CompressionUnit::Sentence, CompressionUnit::Phrase, CompressionUnit::Token] {
            let units = units(&text, &ends, unit);
            prop_assert_eq!((units[0].start, units[units.len() - 1].end), (0, pieces.len()));
            prop_assert!(units.windows(2).all(|pair| pair[0].end == pair[1].start) && units.iter().all(|unit| !unit.is_empty()));
            prop_assert!(units.iter().all(|unit| text.is_char_boundary(ends[unit.end - 1])));
            prop_assert_eq!(left(&text, &ends, &units, &vec![true; units.len()]), text.trim());
            let kept: Vec<bool> = (0..units.len()).map(|at| mask >> (at % 64) & 1 == 1).collect();
            let left = left(&text, &ends, &units, &kept);
            prop_assert!(is_subsequence(&words_of(&left), &words_of(&text)), "{left:?} of {text:?}");
        }
    }
}
