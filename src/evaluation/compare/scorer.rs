//! Whether the scorer ranks better than the generator in whose place it scores.

use super::gains::Gain;
use super::rows::Variant;
use super::summary::Row;
use crate::metrics::resample::format_p_value;

/// One sentence; `None` where no row is scored by the generator in the scorer's place.
pub(super) fn verdict(rows: &[Row], level: f64) -> Option<String> {
    let own = |row: &'_ &Row| row.asked.is_some_and(|asked| asked.variant == Variant::Generator);
    let compared: Vec<(&str, &Row, &Gain)> = rows
        .iter()
        .filter(own)
        .filter_map(|row| Some((row.asked?.method.name(), row, row.over_base.as_ref()?)))
        .collect();
    if compared.is_empty() {
        return None;
    }
    if compared.iter().all(|(_, _, gain)| gain.adjusted.is_none()) {
        return Some("Scorer: no verdict, because no difference from the generator was tested.".to_owned());
    }
    let differs = |gain: &Gain| gain.adjusted.is_some_and(|p| p <= level + 1e-12);
    // The gain is the generator's over the scorer.
    let told = |wins: fn(&Gain) -> bool| {
        let of = compared.iter().filter(move |(_, _, gain)| differs(gain) && wins(gain));
        of.map(|(name, _, gain)| {
            format!("{name} by {:.3}, p {} after Holm", gain.difference.abs(), format_p_value(gain.adjusted))
        })
        .collect::<Vec<_>>()
        .join("; ")
    };
    let scorer = told(|gain| gain.difference < 0.0);
    let generator = told(|gain| gain.difference > 0.0);
    let refused: usize = compared.iter().map(|(_, row, _)| row.refused).sum();
    let refused = if refused > 0 { format!(" The generator refused {refused} requests.") } else { String::new() };
    let sentence = match (scorer.as_str(), generator.as_str()) {
        ("", "") => {
            "Scorer: no method's nDCG@10 differs beyond its error between scorer and generator. The seconds decide."
                .to_owned()
        }
        (scorer, "") => format!("Scorer: keep it. It ranks better than the generator: {scorer}."),
        ("", generator) => format!("Scorer: do without it. The generator ranks better: {generator}."),
        (scorer, generator) => {
            format!(
                "Scorer: it depends on the method. The scorer ranks better: {scorer}. The generator ranks better: {generator}."
            )
        }
    };
    Some(format!("{sentence}{refused}"))
}

#[cfg(test)]
mod tests {
    use super::super::rows::MethodRow;
    use super::*;
    use crate::engine::methods::find;

    fn row(method: &str, difference: f64, p: Option<f64>) -> Row {
        let gain = Gain { difference, low: None, high: None, p_value: p, adjusted: p, wins: 0, ties: 0, losses: 0 };
        let asked = MethodRow { method: find(method).unwrap(), variant: Variant::Generator };
        Row { over_base: Some(gain), asked: Some(asked), ..Row::named(&asked.name()) }
    }

    #[test]
    fn the_scorer_is_kept_where_it_ranks_better_than_the_generator() {
        let of = |rows: &[Row]| verdict(rows, 0.05).unwrap();
        assert_eq!(verdict(&[Row::named("given"), Row::named("moi")], 0.05), None);
        let kept = of(&[row("moi", -0.2, Some(0.01)), row("yes-no", 0.3, Some(0.2))]);
        assert_eq!(kept, "Scorer: keep it. It ranks better than the generator: moi by 0.200, p 0.010 after Holm.");
        let without = of(&[row("moi", 0.1, Some(0.05)), Row { refused: 2, ..row("yes-no", 0.3, Some(0.2)) }]);
        assert!(without.starts_with("Scorer: do without it. The generator ranks better: moi by 0.100"), "{without}");
        assert!(without.ends_with("The generator refused 2 requests."), "{without}");
        let both = of(&[row("moi", 0.1, Some(0.01)), row("yes-no", -0.3, Some(0.01))]);
        assert!(both.contains("better: yes-no by 0.300") && both.contains("better: moi by 0.100"), "{both}");
        assert!(of(&[row("moi", 0.1, Some(0.3))]).contains("no method's nDCG@10 differs"));
        assert!(of(&[row("moi", 0.1, None)]).contains("no verdict"));
    }
}
