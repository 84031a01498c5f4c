//! Code shared by the rerankers of both runtimes: the outputs that make the score, and the truncation of passages.

use prefix_scheduler::model::reranker::{Shortening, TooLong};

/// Labels of the output that says "relevant", in lower case.
const RELEVANT: [&str; 5] = ["relevant", "true", "yes", "positive", "label_1"];

/// The outputs that make the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// The only output.
    One,
    /// The output of the relevant label minus the other output: the logit of the softmax.
    Difference {
        /// Index of the relevant label.
        relevant: usize,
    },
}

impl Head {
    /// `names` are the labels in the order of the outputs; empty if the model has none. Returns the head, and a
    /// description of its score.
    ///
    /// # Errors
    /// More than two outputs, or another number of labels.
    pub fn new(outputs: usize, names: &[String]) -> Result<(Self, String), String> {
        if !names.is_empty() && names.len() != outputs {
            return Err(format!("{} labels given for {outputs} outputs", names.len()));
        }
        let name = |index: usize| names.get(index).map_or_else(|| format!("output {index}"), Clone::clone);
        match outputs {
            1 => Ok((Self::One, format!("logit of {}", name(0)))),
            2 => {
                let is_relevant = |name: &String| RELEVANT.contains(&name.to_lowercase().as_str());
                let relevant = names.iter().position(is_relevant).unwrap_or(1);
                Ok((Self::Difference { relevant }, format!("logit of {} minus {}", name(relevant), name(1 - relevant))))
            }
            other => Err(format!("{other} outputs: a reranker has one or two")),
        }
    }

    /// The score of a row of outputs; NaN for a row that is too short.
    pub fn score(self, row: &[f32]) -> f64 {
        let logit = |index: usize| row.get(index).map_or(f64::NAN, |&logit| f64::from(logit));
        match self {
            Self::One => logit(0),
            Self::Difference { relevant } => logit(relevant) - logit(1 - relevant),
        }
    }
}

/// Truncates the tokens of a passage to the caller's limit and the available room. Its first `kept` tokens are cut last.
/// Returns the number of tokens cut.
///
/// # Errors
/// [`TooLong`] if the passage does not fit and may not be cut.
pub(super) fn shorten<T>(
    tokens: &mut Vec<T>,
    kept: usize,
    available: usize,
    shortening: Shortening,
) -> Result<usize, TooLong> {
    let length = tokens.len();
    let bounded = length.min(shortening.passage_tokens.unwrap_or(usize::MAX));
    if bounded > available && !shortening.truncate {
        return Err(TooLong { needed: bounded, available });
    }
    if shortening.from_start {
        let (target, kept) = (bounded.min(available), kept.min(bounded).min(available));
        tokens.drain(kept..kept + (length - target));
    } else {
        tokens.truncate(bounded.min(available));
    }
    Ok(length - tokens.len())
}

/// Truncates the end of a query to the available room. Returns the number of tokens cut.
///
/// # Errors
/// [`TooLong`] if it does not fit and may not be cut.
pub(super) fn shorten_query<T>(tokens: &mut Vec<T>, available: usize, truncate: bool) -> Result<usize, TooLong> {
    shorten(tokens, 0, available, Shortening { passage_tokens: None, truncate, from_start: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_is_cut_to_the_smaller_of_both_bounds() {
        let cut = |passage_tokens, truncate, available| {
            let mut tokens: Vec<u32> = (0..10).collect();
            let shortening = Shortening { passage_tokens, truncate, from_start: false };
            let cut = shorten(&mut tokens, 0, available, shortening);
            cut.map(|cut| (tokens.len(), cut))
        };
        assert_eq!(cut(None, true, 6), Ok((6, 4)));
        assert_eq!(cut(Some(4), true, 6), Ok((4, 6)));
        assert_eq!(cut(Some(4), false, 6), Ok((4, 6)));
        assert_eq!(cut(None, false, 10), Ok((10, 0)));
        assert_eq!(cut(Some(8), false, 6), Err(TooLong { needed: 8, available: 6 }));
    }

    #[test]
    fn the_first_tokens_are_cut_on_request_and_a_prefix_stays() {
        let rest = |kept, available| {
            let mut tokens: Vec<u32> = (0..10).collect();
            let shortening = Shortening { passage_tokens: Some(8), truncate: true, from_start: true };
            let cut = shorten(&mut tokens, kept, available, shortening).unwrap();
            (tokens, cut)
        };
        assert_eq!(rest(0, 3), (vec![7, 8, 9], 7));
        assert_eq!(rest(0, 20), ((2..10).collect(), 2));
        assert_eq!(rest(2, 4), (vec![0, 1, 8, 9], 6));
        assert_eq!(rest(9, 4), (vec![0, 1, 2, 3], 6), "a prefix that fills all of it");
    }

    fn head(outputs: usize, names: &[&str]) -> Result<(Head, String), String> {
        Head::new(outputs, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_relevant_label_is_found_by_its_name() {
        let (one, words) = head(1, &["LABEL_0"]).unwrap();
        assert!((one.score(&[1.5]) - 1.5).abs() < 1e-12);
        assert_eq!(words, "logit of LABEL_0");
        let (two, words) = head(2, &["Relevant", "irrelevant"]).unwrap();
        assert!((two.score(&[2.0, 0.5]) - 1.5).abs() < 1e-12);
        assert_eq!(words, "logit of Relevant minus irrelevant");
        assert_eq!(head(2, &["no", "yes"]).unwrap().0, Head::Difference { relevant: 1 });
        // Without a clear name, the second output: published two-label rerankers use it.
        assert_eq!(head(2, &["a", "b"]).unwrap().0, Head::Difference { relevant: 1 });
        assert_eq!(head(2, &[]).unwrap().1, "logit of output 1 minus output 0");
    }

    #[test]
    fn other_numbers_of_labels_are_refused() {
        assert!(head(3, &["a", "b", "c"]).unwrap_err().contains("3 outputs"));
        assert!(head(1, &["a", "b"]).unwrap_err().contains("2 labels given for 1 outputs"));
        assert!(Head::One.score(&[]).is_nan());
    }
}
