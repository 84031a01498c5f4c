//! Effect of the prompt format on each method, and the format to configure.

use super::row::Row;
use crate::study::mean::Gain;
use prefix_scheduler::model::PromptFormat;
use rag_metrics::resample::format_p_value;

/// The configuration of a prompt format.
const fn keys(frame: PromptFormat) -> &'static str {
    match frame {
        PromptFormat::Chat => "generator.chat_template=auto",
        PromptFormat::Jinja => "generator.chat_template=jinja",
        PromptFormat::Plain => "generator.chat_template=off",
    }
}

/// Effects of one prompt format on each method.
struct Changes<'a> {
    frame: PromptFormat,
    gains: Vec<(&'a str, &'a Gain)>,
    /// Questions that were refused with this format.
    refused: usize,
}

impl<'a> Changes<'a> {
    fn of(rows: &'a [Row], frame: PromptFormat) -> Self {
        let own: Vec<_> = rows.iter().filter(|row| row.frame() == Some(frame)).collect();
        let refused = own.iter().map(|row| row.refused).sum();
        let gains =
            own.into_iter().filter_map(|row| Some((row.asked?.method.name(), row.over_base.as_ref()?))).collect();
        Self { frame, gains, refused }
    }

    /// The method with the largest gain from the format, among those with a gain that is significant at a level.
    fn gains(&self, level: f64) -> Option<(&'a str, &'a Gain)> {
        let gains = self.gains.iter().copied().filter(|(_, gain)| gain.is_significant(level, 1.0));
        gains.max_by(|left, right| left.1.difference.total_cmp(&right.1.difference))
    }

    /// A method with a significant loss.
    fn loses(&self, level: f64) -> Option<&'a str> {
        self.gains.iter().find(|(_, gain)| gain.is_significant(level, -1.0)).map(|(method, _)| *method)
    }
}

/// The recommended format; `None` if none were compared. A format is recommended if a method gains significantly
/// after Holm's adjustment, no method loses significantly, and no question was refused. Of several formats, the one
/// with the largest gain is chosen.
pub(super) fn verdict(rows: &[Row], frames: &[PromptFormat], level: f64) -> Option<String> {
    let all: Vec<Changes<'_>> = frames.iter().map(|frame| Changes::of(rows, *frame)).collect();
    let tested = |changes: &Changes<'_>| changes.gains.iter().any(|(_, gain)| gain.adjusted.is_some());
    if all.iter().all(|changes| changes.gains.is_empty()) {
        return None;
    }
    if !all.iter().any(tested) {
        return Some("Prompts: no verdict, because no difference between prompt formats was tested.".to_owned());
    }
    let gaining: Vec<_> = all.iter().filter_map(|changes| Some((changes, changes.gains(level)?))).collect();
    let good = gaining.iter().filter(|(changes, _)| changes.loses(level).is_none() && changes.refused == 0);
    if let Some((changes, (method, gain))) =
        good.max_by(|left, right| left.1.1.difference.total_cmp(&right.1.1.difference))
    {
        return Some(format!(
            "Prompts: take {} ({}). {method} gains {:.3} in nDCG@10 by it, p {} after Holm.",
            changes.frame.name(),
            keys(changes.frame),
            gain.difference,
            format_p_value(gain.adjusted),
        ));
    }
    let keep = "Prompts: keep the configured prompt format.";
    Some(match gaining.first() {
        None => format!("{keep} No method gains nDCG@10 beyond its error in another one."),
        Some((changes, (method, _))) => {
            let name = changes.frame.name();
            let but = match changes.loses(level) {
                Some(other) => format!("{other} loses"),
                None => format!("{} requests were refused", changes.refused),
            };
            format!("{keep} In {name} {method} gains nDCG@10 beyond its error, but {but}.")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::rows::{MethodRow, Variant};
    use super::*;
    use engine::methods::find;

    fn row(name: &str, difference: f64, p: f64) -> Row {
        let gain = Gain {
            difference,
            low: None,
            high: None,
            p_value: Some(p),
            adjusted: Some(p),
            wins: 0,
            ties: 0,
            losses: 0,
        };
        let (method, suffix) = name.split_once('+').unwrap();
        let framed = PromptFormat::ALL.into_iter().find(|frame| frame.name() == suffix).map(Variant::Framed);
        let asked = MethodRow { method: find(method).unwrap(), variant: framed.unwrap_or(Variant::Opening) };
        Row { over_base: Some(gain), asked: Some(asked), ..Row::named(name) }
    }

    #[test]
    fn a_format_is_taken_if_it_gains_and_never_loses() {
        let frames = [PromptFormat::Jinja, PromptFormat::Plain];
        let of = |rows: &[Row]| verdict(rows, &frames, 0.05);
        assert_eq!(of(&[Row::named("given"), Row::named("moi")]), None);
        let kept = of(&[Row::named("moi"), row("moi+plain", 0.1, 0.06)]).unwrap();
        assert!(kept.starts_with("Prompts: keep"), "{kept}");
        let taken = of(&[row("moi+jinja", 0.1, 0.05), row("moi+plain", 0.2, 0.01)]).unwrap();
        assert!(taken.starts_with("Prompts: take plain (generator.chat_template=off). moi"), "{taken}");
        // Another method loses.
        let loses = [row("moi+plain", 0.2, 0.01), row("cascade+plain", -0.1, 0.01)];
        let kept = of(&loses).unwrap();
        assert!(kept.starts_with("Prompts: keep") && kept.ends_with("but cascade loses."), "{kept}");
        let other = of(&[&loses[..], &[row("moi+jinja", 0.1, 0.05)]].concat()).unwrap();
        let expected = "Prompts: take jinja (generator.chat_template=jinja). moi gains 0.100";
        assert!(other.starts_with(expected), "{other}");
        // The largest gain need not be significant.
        let mixed = [row("moi+plain", 0.3, 0.4), row("first+plain", 0.1, 0.01), row("yes-no+plain", -0.3, 0.4)];
        assert!(of(&mixed).unwrap().contains("take plain") && of(&mixed).unwrap().contains("first gains 0.100"));
        let loses = of(&[&mixed[..], &[row("cascade+plain", -0.1, 0.01)]].concat()).unwrap();
        assert!(loses.ends_with("In plain first gains nDCG@10 beyond its error, but cascade loses."), "{loses}");
        let refused = of(&[Row { refused: 2, ..row("moi+plain", 0.2, 0.01) }]).unwrap();
        assert!(refused.ends_with("but 2 requests were refused."), "{refused}");
        let mut untested = row("moi+plain", 0.2, 0.01);
        untested.over_base.as_mut().unwrap().adjusted = None;
        assert!(of(&[untested]).unwrap().contains("no verdict"));
        // A row with the caller's prompt prefix has the configured format.
        assert_eq!(of(&[row("moi+opening", 0.3, 0.001)]), None);
    }
}
