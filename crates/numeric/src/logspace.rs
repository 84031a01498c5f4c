//! Log-probabilities computed from logits.
//!
//! `log P(t) = x_t - logsumexp(x)`, with `logsumexp(x) = m + ln Σ exp(x_i - m)`, `m = max x`. A row has one logit per
//! token of the vocabulary (tens of thousands), and a rerank request reads hundreds of rows. The sum therefore runs in
//! `f32` lanes with a polynomial exponential that the compiler can vectorise. The relative error of each term is below
//! 3e-7.

const LANES: usize = 16;

/// Natural logarithm of the sum of exponentials of `logits`; negative infinity for an empty row.
///
/// Any NaN in the row gives NaN, so that an invalid row cannot yield a finite score.
#[must_use]
pub fn logsumexp(logits: &[f32]) -> f64 {
    let peak = maximum(logits);
    if !peak.is_finite() {
        return f64::from(peak);
    }
    let mut total = 0.0_f64;
    // Lane sums are added to the f64 total once per block. This limits the rounding error of a long row.
    for block in logits.chunks(1024) {
        let mut lanes = [0.0_f32; LANES];
        let mut chunks = block.chunks_exact(LANES);
        for chunk in &mut chunks {
            for (lane, &logit) in lanes.iter_mut().zip(chunk) {
                *lane += exp(logit - peak);
            }
        }
        total += lanes.iter().map(|&lane| f64::from(lane)).sum::<f64>();
        total += chunks.remainder().iter().map(|&logit| f64::from(exp(logit - peak))).sum::<f64>();
    }
    f64::from(peak) + total.ln()
}

fn maximum(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut broken = false;
    let mut chunks = logits.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            broken |= logit.is_nan();
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    let mut peak = lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for &logit in chunks.remainder() {
        broken |= logit.is_nan();
        peak = peak.max(logit);
    }
    if broken { f32::NAN } else { peak }
}

/// `exp(x)` for `x <= 0`, as `2^k · exp(r)` with a polynomial for `exp(r)`. Returns 0 for `x` below -87.
fn exp(x: f32) -> f32 {
    let clamped = x.max(-87.0);
    // Adding and subtracting 1.5 · 2^23 rounds to the nearest integer, which then stands in the low bits of the sum. Instructions
    // for rounding and saturating conversions are not in every vector unit.
    let shifted = clamped * std::f32::consts::LOG2_E + SHIFT;
    let k = shifted - SHIFT;
    // Two-step range reduction (Cody and Waite): ln 2 is split so that k·LN2_HIGH is exact.
    let r = fused(k, -LN2_HIGH, clamped);
    let r = fused(k, -LN2_LOW, r);
    let poly = [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let poly = poly.into_iter().fold(1.0 / 720.0, |sum, coefficient| fused(sum, r, coefficient));
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(SHIFT.to_bits() - 127) << 23);
    if x < -87.0 { 0.0 } else { poly * power }
}

/// `a · b + c`, rounded once where the build may use such an instruction. Without one `mul_add` is a call, seventeen times as slow as
/// all the rest: a build for any CPU of an architecture has none.
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) { a.mul_add(b, c) } else { a * b + c }
}

const SHIFT: f32 = 12_582_912.0;
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// `ln Σ exp(x)` in double precision, shifted by the maximum to avoid overflow. Minus infinity for an empty slice.
#[must_use]
pub fn log_sum_exp(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return largest;
    }
    largest + values.iter().map(|value| (value - largest).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(logits: &[f32]) -> f64 {
        let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        f64::from(peak) + logits.iter().map(|&x| (f64::from(x) - f64::from(peak)).exp()).sum::<f64>().ln()
    }

    #[test]
    fn hand_worked() {
        assert!((logsumexp(&[0.0, 0.0]) - 2.0_f64.ln()).abs() < 1e-7);
        assert!((logsumexp(&[1000.0, 1000.0, 1000.0]) - (1000.0 + 3.0_f64.ln())).abs() < 1e-6);
        assert!(logsumexp(&[]).is_infinite());
        assert!(logsumexp(&[0.0, f32::NAN]).is_nan());
    }

    #[test]
    fn agrees_with_double_precision_on_a_wide_row() {
        let mut state = 7_u32;
        let row: Vec<f32> = (0..49_152)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                f32::from(u16::try_from(state >> 16).unwrap()) / 1_500.0 - 30.0
            })
            .collect();
        assert!((logsumexp(&row) - exact(&row)).abs() < 1e-6);
    }

    #[test]
    fn the_polynomial_stays_within_its_stated_error() {
        for step in 0..8_700_u16 {
            let x = -f32::from(step) / 100.0;
            let (ours, theirs) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours - theirs).abs() <= 3e-7 * theirs, "x = {x}: {ours} {theirs}");
        }
    }
}
