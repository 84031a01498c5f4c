//! Lexical similarity of answers.

use std::collections::HashMap;

use crate::types::EngineError;
use numeric::real;
use prefix_scheduler::call::Call;
use rag_metrics::belief::{Estimate, uncertainty};
use rag_metrics::lexical;

/// Mean ROUGE-L of all pairs of texts. Equal texts are compared with the others only once. `None` for fewer than
/// two texts.
pub(super) fn lexical_similarity(texts: &[String], call: &Call) -> Result<Option<Estimate>, EngineError> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut words: Vec<(Vec<String>, usize)> = Vec::new();
    let of: Vec<usize> = texts
        .iter()
        .map(|text| {
            let number = *numbers.entry(text).or_insert_with(|| {
                words.push((lexical::words(text), 0));
                words.len() - 1
            });
            words[number].1 += 1;
            number
        })
        .collect();
    // A text's copies equal it: 1 each.
    let mut sums: Vec<f64> = words.iter().map(|(_, copies)| real(copies - 1)).collect();
    for (left, (text, copies)) in words.iter().enumerate() {
        for (right, (other, other_copies)) in words.iter().enumerate().skip(left + 1) {
            call.check()?;
            let alike = lexical::rouge_l_of(text, other);
            sums[left] += alike * real(*other_copies);
            sums[right] += alike * real(*copies);
        }
    }
    let sums: Vec<f64> = of.into_iter().map(|number| sums[number]).collect();
    Ok(uncertainty::mean_pairwise(&sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(texts: &[&str]) -> Option<Estimate> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        lexical_similarity(&texts, &Call::local()).unwrap()
    }

    #[test]
    fn by_hand() {
        // 1 for the copies, 2/3 twice: one word against two.
        let estimate = similarity(&["dawn", "grey dawn", "dawn"]).unwrap();
        assert!((estimate.value - (1.0 + 2.0 / 3.0 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
        assert!(similarity(&["dawn", "The dawn."]).unwrap().value > 1.0 - 1e-12, "the same words");
        assert!(similarity(&["dawn", "", "fog"]).unwrap().value.abs() < 1e-12);
        assert_eq!((similarity(&[]), similarity(&["dawn"])), (None, None));
    }

    #[test]
    fn copies_count_as_often_as_they_are_given() {
        let texts = ["grey dawn", "dawn", "grey fog", "dawn", "", "grey dawn", "dawn"];
        let mut total = 0.0;
        for (left, text) in texts.iter().enumerate() {
            for other in &texts[left + 1..] {
                total += lexical::rouge_l(text, &[(*other).to_owned()]);
            }
        }
        assert!((similarity(&texts).unwrap().value - total / 21.0).abs() < 1e-12);
    }

    #[test]
    fn a_call_that_stops_ends_it() {
        let call = Call::local();
        call.cancel();
        assert!(lexical_similarity(&["a b".into(), "b".into()], &call).is_err());
    }
}
