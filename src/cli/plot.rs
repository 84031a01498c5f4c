//! Bar charts in text.

use protocol::v1;

/// Characters of the longest bar.
const WIDTH: f64 = 40.0;

/// A bar of `value / largest` times [`WIDTH`], to an eighth of a character.
fn bar(value: f64, largest: f64) -> String {
    let mut left = (value / largest.max(f64::MIN_POSITIVE) * WIDTH * 8.0).round();
    let mut bar = String::new();
    while left >= 8.0 {
        bar.push('█');
        left -= 8.0;
    }
    let rest = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if let Some(part) = (1..8_u8).rev().find(|part| left >= f64::from(*part)) {
        bar.push(rest[usize::from(part) - 1]);
    }
    bar
}

/// Fitted position weights for prompts of one length. `scaled` is false if the scores do not determine the strength of
/// the bias.
pub(super) fn weights(weights: &[f64], scaled: bool) -> String {
    let largest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!("\nposition bias (weight of each position in prompts of {} passages)\n", weights.len());
    if !scaled {
        text.push_str("direction and shape are measured; the strength comes from the prior\n");
    }
    for (position, weight) in weights.iter().enumerate() {
        text.push_str(&format!("{:>4}  {weight:.3}  {}\n", position + 1, bar(*weight, largest)));
    }
    text
}

/// The origin of a profile as an adjective.
pub(super) const fn origin(origin: v1::ProfileOrigin) -> &'static str {
    match origin {
        v1::ProfileOrigin::Learnt => "learnt",
        v1::ProfileOrigin::BuiltIn => "built-in",
        v1::ProfileOrigin::Calibrated | v1::ProfileOrigin::Unspecified => "calibrated",
    }
}

/// A stored profile. Bars start at the profile's lowest position.
pub(super) fn profile(profile: &v1::PositionProfile) -> String {
    let (what, unit) = match profile.subject() {
        v1::ProfileSubject::Answer => {
            ("log-likelihood of the reference answer minus its mean, in nats, by position", "questions")
        }
        _ => ("weight on the question's likelihood, of length 1 without its strength, by position", "fits"),
    };
    let least = profile.means.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = profile.means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut text = format!(
        "\n{} passages, {} {unit}, {}\n{what}\n",
        profile.passages,
        profile.observations,
        origin(profile.origin())
    );
    for (position, value) in profile.means.iter().enumerate() {
        let error = profile.standard_errors.get(position).map_or_else(String::new, |error| format!(" ± {error:.3}"));
        text.push_str(&format!("{:>4}  {value:>7.3}{error}  {}\n", position + 1, bar(value - least, largest - least)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<usize> {
        text.lines()
            .filter(|line| line.starts_with(' '))
            .map(|line| line.chars().filter(|c| *c == '█').count())
            .collect()
    }

    #[test]
    fn the_longest_bar_belongs_to_the_largest_weight() {
        assert_eq!(lengths(&weights(&[0.5, 0.25, 0.0], true)), vec![40, 20, 0]);
        assert!(weights(&[0.5, 0.5], false).contains("the strength comes from the prior"));
    }

    #[test]
    fn a_profile_begins_at_its_lowest_position() {
        let means = vec![-1.0, 0.0, 1.0];
        let origin = v1::ProfileOrigin::Learnt.into();
        let shown = profile(&v1::PositionProfile { passages: 3, observations: 9, means, origin, ..Default::default() });
        assert_eq!(lengths(&shown), vec![0, 20, 40]);
        assert!(shown.contains("3 passages, 9 fits, learnt"));
    }
}
