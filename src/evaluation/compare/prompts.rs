//! Rows that ask a method with other prompts, and what the prompts change.

use super::summary::{Gain, Row};
use crate::engine::methods::MethodRef;
use crate::engine::prompt::Frame;
use crate::metrics::resample::format_p_value;

/// What follows the method in the name of a row whose requests have the caller's instruction and examples.
pub(super) const OPENING: &str = "+opening";

/// The prompts of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prompts {
    /// As the server is configured.
    Configured,
    /// With the caller's opening.
    Opening,
    /// In another frame.
    Framed(Frame),
}

/// A row that asks a method.
#[derive(Debug, Clone, Copy)]
pub(super) struct MethodRow {
    pub method: MethodRef,
    pub prompts: Prompts,
}

impl MethodRow {
    /// The row's name: that of the method, with what its prompts have of their own.
    pub(super) fn name(self) -> String {
        let own = match self.prompts {
            Prompts::Configured => String::new(),
            Prompts::Opening => OPENING.to_owned(),
            Prompts::Framed(frame) => format!("+{}", frame.name()),
        };
        format!("{}{own}", self.method.name())
    }

    /// The name of the row that differs only in the prompts; `None` for that row itself.
    pub(super) fn base(self) -> Option<String> {
        (self.prompts != Prompts::Configured).then(|| self.method.name().to_owned())
    }

    /// The frame that its requests ask for.
    pub(super) const fn frame(self) -> Option<Frame> {
        match self.prompts {
            Prompts::Framed(frame) => Some(frame),
            Prompts::Configured | Prompts::Opening => None,
        }
    }
}

/// The keys of the configuration that give prompts a frame.
const fn keys(frame: Frame) -> &'static str {
    match frame {
        Frame::Chat => "generator.chat_template=true, generator.jinja=false",
        Frame::Jinja => "generator.jinja=true",
        Frame::Plain => "generator.chat_template=false",
    }
}

/// Which frame to take, in one sentence; `None` where frames were not compared. A frame is taken if a method gains by it, and
/// none loses, both significantly after Holm's adjustment; of several the one with the largest gain.
pub(super) fn verdict(rows: &[Row], frames: &[Frame], level: f64) -> Option<String> {
    let significant = |gain: &Gain| gain.adjusted.is_some_and(|p| p <= level + 1e-12);
    let of = |frame: Frame| {
        let suffix = format!("+{}", frame.name());
        let differences =
            rows.iter().filter_map(|row| Some((row.name.strip_suffix(&suffix)?, row.over_base.as_ref()?)));
        differences.collect::<Vec<_>>()
    };
    if frames.iter().all(|frame| of(*frame).is_empty()) {
        return None;
    }
    let gains = frames.iter().filter_map(|frame| {
        let all = of(*frame);
        let loses = all.iter().any(|(_, gain)| significant(gain) && gain.difference < 0.0);
        let gains = all.into_iter().filter(|(_, gain)| !loses && significant(gain) && gain.difference > 0.0);
        gains.max_by(|left, right| left.1.difference.total_cmp(&right.1.difference)).map(|best| (*frame, best))
    });
    let best = gains.max_by(|left, right| left.1.1.difference.total_cmp(&right.1.1.difference));
    Some(match best {
        Some((frame, (method, gain))) => format!(
            "Prompts: take {} ({}): {method} gains {:.3} in nDCG@10 by it, p {} after Holm.",
            frame.name(),
            keys(frame),
            gain.difference,
            format_p_value(gain.adjusted),
        ),
        None => "Prompts: keep the frame of the configuration; no other one gains nDCG@10 beyond its error.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        Row { over_base: Some(gain), ..Row::named(name) }
    }

    #[test]
    fn a_frame_is_taken_where_it_gains_and_loses_nowhere() {
        let frames = [Frame::Jinja, Frame::Plain];
        let of = |rows: &[Row]| verdict(rows, &frames, 0.05);
        assert_eq!(of(&[Row::named("given"), Row::named("moi")]), None);
        let kept = of(&[Row::named("moi"), row("moi+plain", 0.1, 0.06)]).unwrap();
        assert!(kept.starts_with("Prompts: keep"), "{kept}");
        let taken = of(&[row("moi+jinja", 0.1, 0.05), row("moi+plain", 0.2, 0.01)]).unwrap();
        assert!(taken.starts_with("Prompts: take plain (generator.chat_template=false): moi gains 0.200"), "{taken}");
        // Another method loses by it.
        let other = of(&[row("moi+jinja", 0.1, 0.05), row("moi+plain", 0.2, 0.01), row("cascade+plain", -0.1, 0.01)]);
        assert!(other.unwrap().starts_with("Prompts: take jinja (generator.jinja=true): moi gains 0.100"));
        // The other row of an opening is no frame.
        assert_eq!(of(&[row("moi+opening", 0.3, 0.001)]), None);
    }
}
