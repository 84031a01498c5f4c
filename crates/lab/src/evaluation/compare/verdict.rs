//! The verdict, in one sentence.
//!
//! A row is worth recommending if its nDCG@10 in the list is higher than the input order's, significantly after
//! Holm's adjustment, and it answered every question. The best of these rows is compared with every row: a row ties
//! with it if the interval of their paired difference includes 0. Of the tied rows, the one with the fewest tokens
//! of the generator is recommended, and if these are equal, with the fewest of other models. Tokens of two models
//! are not comparable: if a scorer and a generator score rows, one row is chosen for each model, and then the
//! faster one.

use super::gains::compare;
use super::row::{MEAN_TOKENS, NDCG, OTHER_TOKENS, Row, SECONDS};
use super::rows::{MethodRow, Variant};
use super::settings::GIVEN;
use crate::study::mean::{Gain, plain_p};
use numeric::real;
use rag_metrics::resample::Statistics;

/// The recommendation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// One sentence.
    pub sentence: String,
    /// The recommended row; `given` to keep the first-stage order, `None` without a verdict.
    pub choice: Option<String>,
}

/// The verdict over rows; the first is `given`. `ranked` of the questions have a relevant passage in their list.
pub(super) fn of(rows: &[Row], (ranked, questions): (usize, usize), statistics: &Statistics) -> Verdict {
    if ranked < 2 {
        let sentence = format!(
            "No verdict: {ranked} of {questions} questions have a relevant passage in their list, and at least 2 are needed."
        );
        return Verdict { sentence, choice: None };
    }
    let tested = |row: &Row| row.over_given.as_ref().is_some_and(|gain| gain.adjusted.is_some());
    if statistics.test_resamples == 0 && !rows.iter().any(tested) {
        let sentence = "No verdict: no difference was tested (--test-resamples 0).".to_owned();
        return Verdict { sentence, choice: None };
    }
    let mut candidates: Vec<&Row> = rows.iter().filter(|row| is_better(row, 1.0 - statistics.confidence)).collect();
    candidates.sort_by(|left, right| ndcg(right).total_cmp(&ndcg(left)));
    let Some(best) = candidates.first() else {
        let family = rows.iter().filter(|row| tested(row)).count();
        if let Some(least) = statistics.least_p_value(ranked).filter(|p| p * real(family) > 1.0 - statistics.confidence)
        {
            let sentence = format!(
                "No verdict: {ranked} questions with {} resamples cannot tell {family} rows from the retriever's order (p is at \
                 least {:.3} after Holm).",
                statistics.test_resamples,
                (least * real(family)).min(1.0)
            );
            return Verdict { sentence, choice: None };
        }
        // A row that refused questions may have been better on the others.
        let all = if rows.iter().any(|row| row.refused > 0) { " that answered every question" } else { "" };
        let sentence = format!(
            "Keep the retriever's order: no method{all} beats its nDCG@10 of {:.3} beyond its error over {ranked} questions{}.",
            rows.first().map_or(0.0, ndcg),
            nearest(rows)
        );
        return Verdict { sentence, choice: Some(GIVEN.to_owned()) };
    };
    let ties = |row: &&&Row| {
        // The row minus the best one. The choice does not depend on whether intervals are shown.
        let drawn = Statistics { resamples: statistics.resamples.max(1), ..*statistics };
        let interval = compare(best, row, NDCG, &drawn).interval;
        row.name == best.name || interval.is_some_and(|interval| interval.high >= 0.0)
    };
    let two_models = rows.iter().any(|row| row.asked.is_some_and(|asked| asked.variant == Variant::Generator));
    // The generator always scores its own answer.
    let by_generator = |row: &Row| {
        let asks = |asked: MethodRow| asked.method.asks_generator() && !asked.is_scored_by_scorer();
        two_models && row.asked.is_some_and(asks)
    };
    let more_expensive = |left: &&&Row, right: &&&Row| {
        let others = || measure(left, OTHER_TOKENS).total_cmp(&measure(right, OTHER_TOKENS));
        tokens(left).total_cmp(&tokens(right)).then_with(others)
    };
    let cheapest_of =
        |own: bool| candidates.iter().filter(ties).filter(|row| by_generator(row) == own).min_by(more_expensive);
    // Tokens of two models are not comparable.
    let cheapest = [cheapest_of(false), cheapest_of(true)].into_iter().flatten();
    let cheapest = cheapest.min_by(|left, right| seconds(left).total_cmp(&seconds(right)));
    let chosen = cheapest.unwrap_or(best);
    let mut sentence = format!("Take {}: nDCG@10 {:.3}, {}", chosen.name, ndcg(chosen), ground(chosen));
    let time = match chosen.measures.get(SECONDS).and_then(|mean| mean.value) {
        Some(seconds) => format!(" and {seconds:.3} s"),
        None => String::new(),
    };
    sentence.push_str(&format!(", for {}{time} per question", cost(chosen)));
    if chosen.name != best.name {
        let more = ndcg(best) - ndcg(chosen);
        let (name, cost) = (&best.name, cost(best));
        let time = if two_models { format!(" and {:.3} s", seconds(best)) } else { String::new() };
        let higher = if more < 5e-4 { "equal".to_owned() } else { format!("{more:.3} higher, within its error") };
        let lead = format!("; {name} is {higher}, for {cost}{time}");
        sentence.push_str(&lead);
    }
    sentence.push('.');
    Verdict { sentence, choice: Some(chosen.name.clone()) }
}

fn is_better(row: &Row, level: f64) -> bool {
    row.refused == 0 && row.over_given.as_ref().is_some_and(|gain| gain.is_significant(level, 1.0))
}

/// "0.081 above the retriever's order [0.05, 0.11], p = 0.002 after Holm".
fn ground(row: &Row) -> String {
    let Some(gain) = &row.over_given else { return String::new() };
    let p = plain_p(gain.adjusted);
    format!("{:.3} above the retriever's order{}, {p} after Holm", gain.difference, gain.interval())
}

/// The row that is nearest to beating the input order, among those that answered every question, if any.
fn nearest(rows: &[Row]) -> String {
    let gains = rows.iter().filter_map(|row| Some((row, row.over_given.as_ref()?)));
    let key = |(row, gain): &(&Row, &Gain)| (row.refused == 0, gain.difference);
    let nearer = |left: &(&Row, &Gain), right: &(&Row, &Gain)| {
        let ((left, less), (right, more)) = (key(left), key(right));
        left.cmp(&right).then(less.total_cmp(&more))
    };
    let Some((row, gain)) = gains.max_by(nearer) else { return String::new() };
    let refused = if row.refused > 0 { format!(", {} questions refused", row.refused) } else { String::new() };
    let p = plain_p(gain.adjusted);
    format!(" (best: {}, {}, {p} after Holm{refused})", row.name, gain.cell())
}

fn measure(row: &Row, at: usize) -> f64 {
    row.measures.get(at).and_then(|mean| mean.value).unwrap_or(0.0)
}

pub(super) fn ndcg(row: &Row) -> f64 {
    measure(row, NDCG)
}

fn tokens(row: &Row) -> f64 {
    measure(row, MEAN_TOKENS)
}

/// "2507 tokens", "0 tokens, 1672 of another model".
fn cost(row: &Row) -> String {
    let others = match measure(row, OTHER_TOKENS) {
        others if others > 0.0 => format!(", {others:.0} of another model"),
        _ => String::new(),
    };
    format!("{:.0} tokens{others}", tokens(row))
}

fn seconds(row: &Row) -> f64 {
    measure(row, SECONDS)
}

#[cfg(test)]
mod tests {
    use super::super::row::MEASURES;
    use super::*;
    use crate::study::mean::Mean;
    use numeric::mean;

    fn row(name: &str, ndcg: &[f64], tokens: f64) -> Row {
        let of = |value: f64| Mean { value: Some(value), low: None, high: None, questions: ndcg.len() };
        let mut measures = vec![of(0.0); MEASURES.len()];
        (measures[NDCG], measures[MEAN_TOKENS], measures[SECONDS]) = (of(mean(ndcg)), of(tokens), of(0.5));
        let by_question = vec![ndcg.iter().copied().map(Some).collect()];
        Row { measures, by_question, ..Row::named(name) }
    }

    fn judged(rows: Vec<Row>) -> Verdict {
        judged_with(rows, Statistics { test_resamples: 2_000, ..Statistics::default() })
    }

    /// Adds the fields that the summary adds.
    fn judged_with(mut rows: Vec<Row>, statistics: Statistics) -> Verdict {
        let given = rows[0].clone();
        for row in &mut rows[1..] {
            let compared = compare(&given, row, NDCG, &statistics);
            let (low, high) = compared.interval.map(|one| (one.low, one.high)).unzip();
            let (difference, p) = (compared.difference, compared.p_value);
            row.over_given = Some(Gain { difference, low, high, p_value: p, adjusted: p, wins: 0, ties: 0, losses: 0 });
        }
        let ranked = rows[0].of(NDCG).len();
        of(&rows, (ranked, ranked + 1), &statistics)
    }

    fn varied(least: f64) -> Vec<f64> {
        (0..40).map(|at| least + f64::from(at % 5) * 0.05).collect()
    }

    #[test]
    fn the_best_row_is_taken_with_its_ground() {
        let verdict = judged(vec![
            row("given", &varied(0.2), 0.0),
            row("a", &varied(0.5), 900.0),
            row("b", &varied(0.7), 1_200.0),
        ]);
        let start = "Take b: nDCG@10 0.800, 0.500 above the retriever's order [0.500, 0.500], p = ";
        assert!(verdict.sentence.starts_with(start), "{verdict:?}");
        assert!(verdict.sentence.ends_with(" after Holm, for 1200 tokens and 0.500 s per question."), "{verdict:?}");
    }

    #[test]
    fn the_cheapest_of_tied_rows_is_taken() {
        let mut near = varied(0.7);
        // Better on one question, worse on another: higher by less than the error.
        (near[0], near[1]) = (0.9, 0.6);
        let verdict = judged(vec![
            row("given", &varied(0.2), 0.0),
            row("cheap", &varied(0.7), 500.0),
            row("expensive", &near, 5_000.0),
        ]);
        assert_eq!(verdict.choice.as_deref(), Some("cheap"), "{verdict:?}");
        assert!(
            verdict.sentence.contains("; expensive is 0.001 higher, within its error, for 5000 tokens."),
            "{verdict:?}"
        );
        // Tokens of another model decide if those of the generator are equal.
        let mut beside = row("beside", &varied(0.7), 500.0);
        beside.measures[OTHER_TOKENS].value = Some(2_000.0);
        let verdict = judged(vec![row("given", &varied(0.2), 0.0), beside, row("alone", &varied(0.7), 500.0)]);
        assert_eq!(verdict.choice.as_deref(), Some("alone"), "{verdict:?}");
        let equal = "; beside is equal, for 500 tokens, 2000 of another model.";
        assert!(verdict.sentence.ends_with(equal), "{verdict:?}");
        let mut embedding = row("embedding", &varied(0.7), 0.0);
        embedding.measures[OTHER_TOKENS].value = Some(1_672.0);
        let verdict = judged(vec![row("given", &varied(0.2), 0.0), embedding]);
        assert!(verdict.sentence.contains("for 0 tokens, 1672 of another model and 0.500 s"), "{verdict:?}");
    }

    /// Without intervals nothing would tie, and the expensive row would be taken.
    #[test]
    fn the_choice_does_not_depend_on_the_intervals_that_are_shown() {
        let mut near = varied(0.7);
        (near[0], near[1]) = (0.9, 0.6);
        let rows = || {
            vec![row("given", &varied(0.2), 0.0), row("cheap", &varied(0.7), 500.0), row("expensive", &near, 5_000.0)]
        };
        let plain = Statistics { test_resamples: 2_000, resamples: 0, ..Statistics::default() };
        assert_eq!(judged_with(rows(), plain).choice, judged(rows()).choice);
    }

    /// Five wins of five, or a few sign flips, cannot be significant. "Keep the order" would then be an unfounded
    /// verdict.
    #[test]
    fn there_is_no_verdict_if_nothing_could_be_significant() {
        let rows =
            |count: usize| vec![row("given", &varied(0.2)[..count], 0.0), row("a", &varied(0.7)[..count], 900.0)];
        let few = judged(rows(5));
        assert!(few.choice.is_none() && few.sentence.starts_with("No verdict: 5 questions"), "{few:?}");
        let flips = Statistics { test_resamples: 10, ..Statistics::default() };
        let few = judged_with(rows(40), flips);
        assert!(few.choice.is_none() && few.sentence.contains("10 resamples"), "{few:?}");
        assert_eq!(judged(rows(8)).choice.as_deref(), Some("a"));
    }

    #[test]
    fn the_faster_of_tied_rows_of_two_models_is_taken() {
        let mut near = varied(0.7);
        (near[0], near[1]) = (0.9, 0.6);
        // The scorer is small: more tokens in less time.
        let mut scorer = row("moi", &varied(0.7), 900.0);
        scorer.measures[SECONDS].value = Some(0.1);
        let method = engine::methods::find("moi").unwrap();
        let asked = Some(MethodRow { method, variant: Variant::Generator });
        let generator = Row { asked, ..row("moi+generator", &near, 500.0) };
        let verdict = judged(vec![row("given", &varied(0.2), 0.0), scorer, generator]);
        assert_eq!(verdict.choice.as_deref(), Some("moi"), "{verdict:?}");
        let lead = "; moi+generator is 0.001 higher, within its error, for 500 tokens and 0.500 s.";
        assert!(verdict.sentence.ends_with(lead), "{verdict:?}");
        // Fewer tokens than the scorer's row, but tokens of the generator.
        let mut scorer = row("moi", &varied(0.7), 900.0);
        scorer.measures[SECONDS].value = Some(0.1);
        let method = engine::methods::find("leave-one-out").unwrap();
        let own = MethodRow { method, variant: Variant::Configured };
        let own = Row { asked: Some(own), ..row("leave-one-out", &varied(0.7), 400.0) };
        let generator = Row { asked, ..row("moi+generator", &varied(0.3), 500.0) };
        let verdict = judged(vec![row("given", &varied(0.2), 0.0), scorer, own, generator]);
        assert_eq!(verdict.choice.as_deref(), Some("moi"), "{verdict:?}");
    }

    #[test]
    fn the_given_order_is_kept_unless_a_row_beats_it_on_every_question_asked() {
        let mut worse = varied(0.2);
        worse[0] = 0.25;
        let verdict = judged(vec![row("given", &varied(0.2), 0.0), row("a", &worse, 900.0)]);
        assert_eq!(verdict.choice.as_deref(), Some("given"));
        let start = "Keep the retriever's order: no method beats its nDCG@10 of 0.300 beyond its error over 40 questions (best: a, ";
        assert!(verdict.sentence.starts_with(start), "{verdict:?}");
        // It beats the order on the questions that it answered.
        let refusing = Row { refused: 1, ..row("a", &varied(0.9), 1.0) };
        let start = "Keep the retriever's order: no method that answered every question beats its nDCG@10 of 0.300 ";
        let verdict = judged(vec![row("given", &varied(0.2), 0.0), refusing.clone()]);
        assert!(verdict.sentence.starts_with(start) && verdict.sentence.contains("1 questions refused"), "{verdict:?}");
        let verdict = judged(vec![row("given", &varied(0.2), 0.0), refusing, row("b", &worse, 900.0)]);
        assert!(verdict.sentence.starts_with(start) && verdict.sentence.contains("(best: b, "), "{verdict:?}");
        assert_eq!(judged(vec![row("given", &[0.5], 0.0), row("a", &[1.0], 0.0)]).choice, None);
    }
}
