//! Compares the scorer with the generator that it replaces.

use super::gains::compare;
use super::row::{NDCG, Row};
use super::rows::{MethodRow, Variant};
use super::verdict::ndcg;
use crate::study::mean::plain_p;
use rag_metrics::resample::Statistics;

/// One sentence: the best row of the scorer against the best row of the generator. `None` if the generator scores no
/// row instead of the scorer. The best rows are compared, not each method with itself, because the models may be good
/// at different methods, as a causal reranker is.
pub(super) fn verdict(rows: &[Row], statistics: &Statistics) -> Option<String> {
    let all =
        |of: &dyn Fn(MethodRow) -> bool| -> Vec<&Row> { rows.iter().filter(|row| row.asked.is_some_and(of)).collect() };
    // Without the caller's prompt prefix, because the generator's rows lack it.
    let scorers = all(&|asked| asked.variant == Variant::Configured && asked.is_scored_by_scorer());
    let generators = all(&|asked| asked.variant == Variant::Generator);
    if generators.is_empty() {
        return None;
    }
    let (Some(scorer), Some(generator)) = (best(&scorers), best(&generators)) else {
        let all = if best(&scorers).is_none() { "the scorer" } else { "the generator" };
        return Some(format!("Scorer: no verdict, because every row of {all} refused questions."));
    };
    let compared = compare(generator, scorer, NDCG, statistics);
    let both = format!("{} (nDCG@10 {:.3}) and {} ({:.3})", scorer.name, ndcg(scorer), generator.name, ndcg(generator));
    let Some(p) = compared.p_value else {
        return Some(format!("Scorer: no verdict, because the difference between {both} was not tested."));
    };
    let p_value = plain_p(Some(p));
    let ground = format!(
        "{both} differ by {:.3}, {p_value} in one test of rows that were chosen on the same questions",
        compared.difference.abs()
    );
    Some(if p > 1.0 - statistics.confidence + 1e-12 {
        format!(
            "Scorer: it ranks no better and no worse than the generator beyond the error. Their best rows {ground}."
        )
    } else if compared.difference > 0.0 {
        format!("Scorer: keep it, it ranks better than the generator. Their best rows {ground}.")
    } else {
        format!("Scorer: do without it, the generator ranks better. Their best rows {ground}.")
    })
}

/// The best row without refusals: the mean of a row with refusals is over other questions.
fn best<'a>(rows: &[&'a Row]) -> Option<&'a Row> {
    let whole = rows.iter().copied().filter(|row| row.refused == 0);
    whole.max_by(|left, right| ndcg(left).total_cmp(&ndcg(right)))
}

#[cfg(test)]
mod tests {
    use super::super::row::MEASURES;
    use super::*;
    use crate::study::mean::Mean;
    use engine::methods::find;
    use numeric::mean;

    fn row(method: &str, variant: Variant, ndcg: &[f64]) -> Row {
        let of = |value: f64| Mean { value: Some(value), low: None, high: None, questions: ndcg.len() };
        let mut measures = vec![of(0.0); MEASURES.len()];
        measures[NDCG] = of(mean(ndcg));
        let asked = MethodRow { method: find(method).unwrap(), variant };
        let by_question = vec![ndcg.iter().copied().map(Some).collect()];
        Row { measures, by_question, asked: Some(asked), ..Row::named(&asked.name()) }
    }

    /// A causal reranker as scorer is good at another method than the generator.
    #[test]
    fn the_best_rows_of_both_are_compared() {
        let statistics = Statistics { test_resamples: 2_000, ..Statistics::default() };
        let of = |rows: &[Row]| verdict(rows, &statistics).unwrap();
        let (own, generator) = (Variant::Configured, Variant::Generator);
        let rows = |yes_no: f64| {
            vec![
                Row::named("given"),
                row("yes-no", own, &[yes_no; 12]),
                row("yes-no", generator, &[0.1; 12]),
                row("cascade", own, &[0.2; 12]),
                row("cascade", generator, &[0.6; 12]),
                // This method always asks the generator.
                row("leave-one-out", own, &[0.95; 12]),
            ]
        };
        assert_eq!(verdict(&rows(0.5)[..2], &statistics), None, "no row of the generator");
        let kept = of(&rows(0.9));
        let start = "Scorer: keep it, it ranks better than the generator. Their best rows yes-no (nDCG@10 0.900) and cascade+generator (0.600) differ by 0.300, p ";
        assert!(kept.starts_with(start), "{kept}");
        assert!(of(&rows(0.3)).starts_with("Scorer: do without it, the generator ranks better."));
        assert!(of(&rows(0.6)).contains("no better and no worse"));
        let mut refusing = rows(0.9);
        refusing[1].refused = 3;
        assert!(of(&refusing).contains("cascade (nDCG@10 0.200) and cascade+generator"), "{}", of(&refusing));
        refusing[3].refused = 1;
        assert_eq!(of(&refusing), "Scorer: no verdict, because every row of the scorer refused questions.");
        let opening = [rows(0.3), vec![row("yes-no", Variant::Opening, &[0.99; 12])]].concat();
        assert!(of(&opening).contains("do without it"), "the generator has no row with the caller's opening");
        let untested = Statistics { test_resamples: 0, ..statistics };
        assert!(verdict(&rows(0.9), &untested).unwrap().contains("was not tested"));
    }
}
