use std::cell::Cell;
use std::collections::HashSet;

use super::*;
use crate::types::SIMILARITY;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn repeats(texts: &[&str], similarity: f64) -> Vec<Option<usize>> {
    let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    repeated(&texts, similarity, || Ok::<_, ()>(())).unwrap()
}

#[test]
fn hand_worked_texts() {
    // Four pairs each, three of them common: 3 of 5.
    let (one, other) = ("the cat sat on mats", "the cat sat on rugs");
    assert_eq!(repeats(&[one, other], 0.6), [None, Some(0)]);
    assert_eq!(repeats(&[one, other], 0.61), [None, None]);
    assert_eq!(repeats(&["A  b,\r\nC!", "x", "a b c"], 1.0), [None, None, Some(0)]);
    assert_eq!(repeats(&["?!", " ?! ", "!?", "", "word", "Word."], 1.0), [None, Some(0), None, None, None, Some(4)]);
    assert_eq!(repeats(&["東京は日本の首都です", "東京は日本の首都です。"], 1.0), [None, Some(0)]);
    // The second repeats the first; the third only repeats the second, which is not kept.
    let chain = ["a b c d e f g h", "b c d e f g h i", "d e f g h i j k"];
    assert_eq!(repeats(&chain, 0.5), [None, Some(0), None]);
    assert_eq!(repeats(&chain[1..], 0.5), [None, Some(0)]);
}

#[test]
fn the_work_can_be_stopped() {
    assert_eq!(repeated(&["a".to_owned()], SIMILARITY, || Err("stopped")), Err("stopped"));
}

/// Distinct word pairs, and every pair of texts compared.
fn by_definition(texts: &[String], similarity: f64) -> Vec<Option<usize>> {
    let sets: Vec<HashSet<u64>> = texts.iter().map(|text| word_pairs(text).into_iter().collect()).collect();
    let mut found: Vec<Option<usize>> = Vec::new();
    for (place, own) in sets.iter().enumerate() {
        let similar = |other: &usize| {
            let common = real(own.intersection(&sets[*other]).count());
            found[*other].is_none() && common / real(own.union(&sets[*other]).count()) >= similarity - ROUNDING
        };
        let first = (0..place).find(similar);
        found.push(first);
    }
    found
}

#[test]
fn equal_to_the_comparison_of_all_pairs() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..300 {
        let words = |random: &mut ChaCha8Rng| {
            (0..random.random_range(0..9)).map(|_| random.random_range(0..4).to_string()).collect::<Vec<_>>().join(" ")
        };
        let texts: Vec<String> = (0..30).map(|_| words(&mut random)).collect();
        let similarity = f64::from(random.random_range(1..=10)) / 10.0;
        let found = repeated(&texts, similarity, || Ok::<_, ()>(())).unwrap();
        assert_eq!(found, by_definition(&texts, similarity), "{similarity} {texts:?}");
    }
}

const VOCABULARY: usize = 3_000;
const BOILERPLATE: &str = "This page is part of the archive. All rights reserved. Read our terms and the privacy notice \
    before you copy any part of this text, and write to the editors if you find an error in it. Sign in to save articles";

fn text(random: &mut ChaCha8Rng, words: usize) -> Vec<String> {
    // Frequent words are as frequent as in natural text.
    let word = |_| {
        let share: f64 = random.random();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small number")]
        let number = (share * share * share * real(VOCABULARY)) as usize;
        format!("w{number}")
    };
    (0..words).map(word).collect()
}

/// Replaces, deletes or doubles this share of the words.
fn edited(random: &mut ChaCha8Rng, words: &[String], share: f64) -> Vec<String> {
    let mut changed = Vec::new();
    for word in words {
        if random.random::<f64>() >= share {
            changed.push(word.clone());
            continue;
        }
        match random.random_range(0..3) {
            0 => changed.extend(text(random, 1)),
            1 => {}
            _ => changed.extend([word.clone(), text(random, 1)[0].clone()]),
        }
    }
    changed
}

/// A labelled set: each kind of pair 200 times, among texts of other subjects.
#[test]
fn precision_and_recall_by_kind() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let kinds = ["copy", "5 %", "10 %", "20 %", "boilerplate", "other"];
    // The most and the fewest of 200 pairs that may be found, at the default similarity and at 0.4.
    let bounds = [
        [(200, 200); 2],
        [(195, 200), (200, 200)],
        [(150, 200), (195, 200)],
        [(0, 60), (120, 200)],
        [(0, 0), (0, 0)],
        [(0, 0), (0, 0)],
    ];
    for (at, similarity) in [SIMILARITY, 0.4].into_iter().enumerate() {
        let (mut right, mut wrong) = (0, 0);
        for (kind, bounds) in kinds.iter().zip(bounds) {
            let found = (0..200).filter(|_| {
                let original = text(&mut random, 100);
                let other = match *kind {
                    "copy" => original.iter().map(|word| word.to_uppercase()).collect(),
                    "5 %" => edited(&mut random, &original, 0.05),
                    "10 %" => edited(&mut random, &original, 0.1),
                    "20 %" => edited(&mut random, &original, 0.2),
                    _ => text(&mut random, 100),
                };
                let around = |words: &[String]| {
                    if *kind == "boilerplate" { format!("{} {BOILERPLATE}", words.join(" ")) } else { words.join(" ") }
                };
                let mut texts = vec![around(&original)];
                texts.extend((0..5).map(|_| around(&text(&mut random, 100))));
                texts.push(around(&other));
                let found = repeated(&texts, similarity, || Ok::<_, ()>(())).unwrap();
                wrong += found[..6].iter().flatten().count();
                found[6] == Some(0)
            });
            let found = found.count();
            if matches!(*kind, "boilerplate" | "other") {
                wrong += found;
            } else {
                right += found;
            }
            println!("similarity {similarity}: {kind}: {found} of 200 found");
            assert!((bounds[at].0..=bounds[at].1).contains(&found), "{similarity} {kind}: {found}");
        }
        println!("similarity {similarity}: precision {:.3}", real(right) / real(right + wrong));
        assert_eq!(wrong, 0);
    }
}

/// Boilerplate that all texts share must not make every text a candidate.
#[test]
fn comparisons_grow_with_the_number_of_texts() {
    let mut random = ChaCha8Rng::seed_from_u64(2);
    let count = 1_000;
    let texts = (0..count).map(|_| format!("{} {BOILERPLATE}", text(&mut random, 100).join(" ")));
    let (texts, checks) = (texts.collect::<Vec<String>>(), Cell::new(0));
    let count_checks = || {
        checks.set(checks.get() + 1);
        Ok::<_, ()>(())
    };
    assert!(repeated(&texts, SIMILARITY, count_checks).unwrap().iter().all(Option::is_none));
    let comparisons = checks.get() - 2 * count;
    println!("{comparisons} comparisons of {count} texts, {} of all pairs", count * (count - 1) / 2);
    assert!(comparisons < count, "{comparisons}");
}
