//! Cases worked by hand, and properties against a direct implementation of the definition with all verdicts.

use proptest::prelude::*;

use super::*;

fn split(answer: &str) -> Vec<(String, Vec<usize>)> {
    statements(answer).into_iter().map(|statement| (statement.text, statement.citations)).collect()
}

fn is(answer: &str, expected: &[(&str, &[usize])]) {
    let expected: Vec<(String, Vec<usize>)> =
        expected.iter().map(|(text, cited)| ((*text).to_owned(), cited.to_vec())).collect();
    assert_eq!(split(answer), expected, "{answer:?}");
}

#[test]
fn citations_before_and_behind_the_full_stop() {
    is("It rained [1]. It stopped [2][3].", &[("It rained.", &[1]), ("It stopped.", &[2, 3])]);
    is("It rained. [1] It stopped. [2]", &[("It rained.", &[1]), ("It stopped.", &[2])]);
    is("It rained.[1] It stopped.[2]", &[("It rained.", &[1]), ("It stopped.", &[2])]);
    is("It rained.[1]It stopped.", &[("It rained.", &[1]), ("It stopped.", &[])]);
    // After a sentence with a citation, the next citation belongs to the following text, unless it touches the
    // stop.
    is("It rained [1]. [2] They say it stopped.", &[("It rained.", &[1]), ("They say it stopped.", &[2])]);
    is("It rained [1].[2] It stopped.", &[("It rained.", &[1, 2]), ("It stopped.", &[])]);
    is("It rained [1]. [2]", &[("It rained.", &[1, 2])]);
    is("[1] It rained. It stopped.", &[("It rained.", &[1]), ("It stopped.", &[])]);
    is("It rained [1] and stopped [2] at noon.", &[("It rained and stopped at noon.", &[1, 2])]);
}

#[test]
fn several_numbers_and_what_is_none() {
    is("A b [1, 3; 2].", &[("A b.", &[1, 3, 2])]);
    is("A b [2-4] [ 7 ].", &[("A b.", &[2, 3, 4, 7])]);
    is("A b [1][1] [01].", &[("A b.", &[1])]);
    is("A b [0][999999999999999999999].", &[("A b.", &[0, usize::MAX])]);
    for text in ["A b [a].", "A b [].", "A b [1", "A b [1-9999].", "A b [4-2].", "A b [1,].", "A b [-1].", "A b (1)."] {
        is(text, &[(text, &[])]);
    }
    is("[1]", &[]);
    is("  \n [1] -- [2]\n", &[]);
    is("", &[]);
}

#[test]
fn abbreviations_lines_and_lists() {
    is(
        "Dr. J. Smith of the U.S. Navy met Mr. Low [1]. It was 3.5 km away [2].",
        &[("Dr. J. Smith of the U.S. Navy met Mr. Low.", &[1]), ("It was 3.5 km away.", &[2])],
    );
    is("1. It rained [1].\n2. It stopped [2].", &[("It rained.", &[1]), ("It stopped.", &[2])]);
    is("- It rained [1]\n- It stopped [2]\n", &[("- It rained", &[1]), ("- It stopped", &[2])]);
    is("It rained.\n[1]\nIt stopped.\n[2]", &[("It rained.", &[1]), ("It stopped.", &[2])]);
    is("It rained.\n[1] It stopped.", &[("It rained.", &[]), ("It stopped.", &[1])]);
    is("In 1871.", &[("In 1871.", &[])]);
    is("1871 [1]", &[("1871", &[1])]);
    is("Es regnete [1]。雨が降った[2]。", &[("Es regnete。", &[1]), ("雨が降った。", &[2])]);
}

/// A statement was cut at a question mark inside an address, and its first part had no citation.
#[test]
fn addresses_names_and_abbreviations_are_within_a_statement() {
    for sentence in [
        "The ferry leaves at noon, says https://example.org/find?line=7",
        "The ferry leaves at noon, says https://example.org/find?line=7&day=Mon in No. 5",
        "Yahoo!Mail holds that x!=y",
        "Some mills, e.g. the one of p. 12, run for 3.14 h",
        "Brown v. Board was decided by J. R. R. Low et al. in the U.S. Senate",
        "\u{201c}Why?\u{201d} he asked",
        "Yahoo! is old",
    ] {
        let text = format!("{sentence}.");
        is(&format!("{sentence} [1]. It stopped [2]."), &[(&text, &[1]), ("It stopped.", &[2])]);
        is(&format!("{sentence}.[1] It stopped. [2]"), &[(&text, &[1]), ("It stopped.", &[2])]);
    }
    is(
        "The steps are: 1. It rained [1]. 2. It stopped [2].",
        &[("The steps are: 1. It rained.", &[1]), ("It stopped.", &[2])],
    );
    is("A. Rowe wrote it [1].\nB. The mill is old [2].", &[("A. Rowe wrote it.", &[1]), ("The mill is old.", &[2])]);
}

/// The end of an emphasis counted as the beginning of the next sentence, which then had the citation.
#[test]
fn citations_behind_emphasis_and_dashes() {
    is("*It rained.* [1]\n*It stopped.* [2]", &[("*It rained.*", &[1]), ("*It stopped.*", &[2])]);
    is(
        "**The mill ran on water.** [1] It stood by the Senn [2].",
        &[("**The mill ran on water.**", &[1]), ("It stood by the Senn.", &[2])],
    );
    is("**It rained.**[1]\nNext.", &[("**It rained.**", &[1]), ("Next.", &[])]);
    is("It rained. \u{2014} [1]\nNext.", &[("It rained. \u{2014}", &[1]), ("Next.", &[])]);
    is("It rained. *Nobody* came [1].", &[("It rained.", &[]), ("*Nobody* came.", &[1])]);
}

/// Marks other than digits counted as statements without a citation.
#[test]
fn marks_of_list_items_are_no_statements() {
    for [first, second] in [["a.", "b."], ["i.", "ii."], ["A.", "B."], ["**1.**", "**2.**"], ["### 1.", "### 2."]] {
        let answer = format!("{first} The rain fell [1].\n{second} The rain stopped [2].");
        is(&answer, &[("The rain fell.", &[1]), ("The rain stopped.", &[2])]);
    }
    // A list that was cut at the token limit, and an answer that is a number.
    is("1. It rained [1].\n2. It stopped [2].\n3.", &[("It rained.", &[1]), ("It stopped.", &[2])]);
    is("So many wheels:\n12. [1]", &[("So many wheels:", &[]), ("12.", &[1])]);
    is("42.", &[("42.", &[])]);
    is("So many:\n12.\nLamps:\n42. [2]", &[("So many:", &[]), ("Lamps:", &[]), ("42.", &[2])]);
    // Items that look like marks: they were all lost.
    is("1. A. [1]\n2. B. [2]", &[("A.", &[1]), ("B.", &[2])]);
    is("1. 12.\n2. 13. [2]\n3.", &[("12.", &[]), ("13.", &[2])]);
}

/// A stop after a citation ends a sentence, whatever precedes the citation.
#[test]
fn a_citation_between_an_abbreviation_and_a_stop() {
    is(
        "He moved to the U.S. [1]. He died in 1990 [2].",
        &[("He moved to the U.S..", &[1]), ("He died in 1990.", &[2])],
    );
    is("He left at 9 a.m. [2]. It rained.", &[("He left at 9 a.m..", &[2]), ("It rained.", &[])]);
    is("He left on Sept. 11, 2001 [1].", &[("He left on Sept. 11, 2001.", &[1])]);
}

/// Verdicts by a rule on the set of passages.
fn checked(answer: &str, passages: usize, entails: impl Fn(&[usize], usize) -> bool) -> (Check, usize) {
    let mut check = Check::new(&statements(answer), passages);
    let mut judged = 0;
    loop {
        let needed = check.needed();
        if needed.is_empty() {
            return (check, judged);
        }
        assert!(check.finish(OutOfRange::Imprecise).is_none(), "not before every verdict is there");
        judged += needed.len();
        for pair in needed {
            let supports = entails(&pair.passages, pair.statement);
            check.absorb(pair, supports);
        }
    }
}

fn measured(answer: &str, passages: usize, entails: impl Fn(&[usize], usize) -> bool) -> (f64, Option<f64>, usize) {
    let (check, judged) = checked(answer, passages, entails);
    let citations = check.finish(OutOfRange::Imprecise).unwrap();
    (citations.recall, citations.precision, judged)
}

#[test]
fn hand_worked_measures() {
    let yes = |_: &[usize], _: usize| true;
    let no = |_: &[usize], _: usize| false;
    // One citation each, one pair each.
    assert_eq!(measured("A b [1]. C d [2].", 2, yes), (1.0, Some(1.0), 2));
    assert_eq!(measured("A b [1]. C d [2].", 2, no), (0.0, Some(0.0), 2));
    assert_eq!(measured("A b [1]. C d.", 2, yes), (0.5, Some(1.0), 1));
    assert_eq!(measured("A b. C d.", 2, yes), (0.0, None, 0));
    // Passage 0 supports, 1 does not: 1 is irrelevant. The joint pair, then each separately; without 1, only 0 is
    // left.
    let first = |premise: &[usize], _: usize| premise.contains(&0);
    assert_eq!(measured("A b [1][2].", 2, first), (1.0, Some(0.5), 3));
    // Both are needed: neither supports by itself, and neither does the other.
    let both = |premise: &[usize], _: usize| premise.contains(&0) && premise.contains(&1);
    assert_eq!(measured("A b [1][2].", 2, both), (1.0, Some(1.0), 3));
    // With a third that is not needed: joint, three single, three without one.
    assert_eq!(measured("A b [1][2][3].", 3, both), (1.0, Some(2.0 / 3.0), 7));
    // Without recall no more pairs are judged, and every citation is imprecise.
    assert_eq!(measured("A b [1][2][3].", 3, no), (0.0, Some(0.0), 1));
    // A citation without a passage sets the statement's recall to 0, without a pair.
    assert_eq!(measured("A b [1][9]. C d [1].", 2, yes), (0.5, Some(1.0 / 3.0), 1));
    assert_eq!(measured("A b [0].", 2, yes), (0.0, Some(0.0), 0));
}

#[test]
fn what_is_out_of_range_may_be_left_out() {
    let (check, _) = checked("A b [1][9]. C d [1].", 2, |_, _| true);
    let found = check.finish(OutOfRange::LeftOut).unwrap();
    assert_eq!((found.recall, found.precision, found.counted), (0.5, Some(1.0), 1));
    let found = check.finish(OutOfRange::Imprecise).unwrap();
    assert_eq!((found.counted, found.statements[0].citations[1].exists), (3, false));
    assert_eq!(found.statements[0].citations[0].alone, None);
    let (check, _) = checked("A b [9].", 2, |_, _| true);
    assert_eq!(check.finish(OutOfRange::LeftOut).unwrap().precision, None);
    let none = Check::new(&[], 3).finish(OutOfRange::Imprecise).unwrap();
    assert_eq!((none.recall, none.precision), (0.0, None));
}

/// Verdicts from a table by the set of passages; any mixture of answers, including ones that no model would give.
fn bit(table: u64, premise: &[usize], statement: usize) -> bool {
    let set = premise.iter().fold(0_u64, |set, passage| set | 1 << passage);
    (table >> ((set * 7 + statement as u64 * 13) % 64)) & 1 == 1
}

proptest! {
    #[test]
    fn measures_follow_the_definition(
        cited in proptest::collection::vec(proptest::collection::vec(0_usize..6, 0..5), 1..6), table: u64,
    ) {
        let sentence = |numbers: &Vec<usize>| {
            let brackets = numbers.iter().map(|number| format!("[{number}]")).collect::<Vec<_>>().concat();
            format!("Word here {brackets}.")
        };
        let answer = cited.iter().map(sentence).collect::<Vec<_>>().join(" ");
        let (check, judged) = checked(&answer, 4, |premise, statement| bit(table, premise, statement));
        let found = check.finish(OutOfRange::Imprecise).unwrap();
        prop_assert_eq!(found.statements.len(), cited.len());
        let (mut recall, mut precise, mut all) = (0, 0, 0);
        for (statement, numbers) in cited.iter().enumerate() {
            let mut set: Vec<usize> = Vec::new();
            for number in numbers {
                if !set.contains(number) {
                    set.push(*number);
                }
            }
            all += set.len();
            let valid = !set.is_empty() && set.iter().all(|number| (1..=4).contains(number));
            let entails = |numbers: &[usize]| {
                bit(table, &numbers.iter().map(|number| number - 1).collect::<Vec<_>>(), statement)
            };
            if !valid || !entails(&set) {
                continue;
            }
            recall += 1;
            for number in &set {
                let others: Vec<usize> = set.iter().copied().filter(|other| other != number).collect();
                let irrelevant = !others.is_empty() && !entails(&[*number]) && entails(&others);
                precise += usize::from(!irrelevant);
            }
        }
        prop_assert_eq!(found.recall.to_bits(), (real(recall) / real(cited.len())).to_bits());
        prop_assert_eq!(found.precision, (all > 0).then(|| real(precise) / real(all)));
        prop_assert!(judged <= cited.iter().map(|numbers| 1 + 2 * numbers.len()).sum());
    }

    #[test]
    fn no_text_is_lost_and_no_input_fails(answer in "(aab|[\\[\\]0-9,.; \n\u{e9}\u{3002}-]){0,60}") {
        let found = statements(&answer);
        for statement in &found {
            prop_assert!(statement.text.contains(char::is_alphanumeric));
        }
        let text: String = found.iter().map(|statement| statement.text.as_str()).collect();
        let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
        prop_assert_eq!(letters(&text), letters(&answer));
    }
}

#[test]
fn marks_are_taken_out_of_an_answer() {
    assert_eq!(
        without_marks("The mill is old [1][2]. The weir, too [2-4]; rye [1, 3]."),
        "The mill is old. The weir, too; rye."
    );
    assert_eq!(without_marks("The mill is old.[1] The weir, too.[2]"), "The mill is old. The weir, too.");
    assert_eq!(without_marks("[1] The mill\n[2] the weir [3]"), "The mill\n the weir");
    assert_eq!(without_marks("[1]"), "");
    assert_eq!(without_marks("It drew [10,000] people [1,2]."), "It drew [10,000] people.");
    for plain in ["", " a [sic] [1-999] b ", "[x]", "1871"] {
        assert_eq!(without_marks(plain), plain);
    }
}

/// Time must not grow with the square of the length.
#[test]
fn long_hostile_answers_end() {
    for part in ["[", "[1]", "[1]\n", "\n", "a[1-16]", "[1", " [1] .", "a. [2] "] {
        let _ = statements(&part.repeat(200_000));
    }
}
