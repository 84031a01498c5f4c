//! Tables, charts and verdict.

use super::Quality;
use super::pool::{Listed, Measure, Pool, Reached};
use crate::analysis::ANSWER_TOKENS;
use crate::analysis::readings::by_side;
use crate::study::StudyError;
use crate::study::chart::{self, Axes, Series};
use crate::study::report::Report;
use numeric::real;
use rag_metrics::agreement::Correlation;
use rag_metrics::recall::Family;
use rag_metrics::resample::Statistics;

/// The coefficients of the first table. The other tables take the first coefficient, as the paper's figures do.
const KINDS: [(Correlation, &str); 3] =
    [(Correlation::Spearman, "rho"), (Correlation::KendallB, "tau-b"), (Correlation::Pearson, "r")];

/// Fewest samples of a segment by K/N.
const LEAST: usize = 10;

/// Least step between drawn alphas of a curve.
const STEP: f64 = 0.005;

/// Subject of a table.
struct About<'a> {
    quality: Quality,
    statistics: &'a Statistics,
}

/// Adds everything about one quality. The first sets the verdict.
pub(super) fn add(
    report: &mut Report,
    quality: Quality,
    lists: &[Listed],
    statistics: &Statistics,
) -> Result<(), StudyError> {
    let about = About { quality, statistics };
    let all = Pool::new("all lists and cut-offs", lists, |_| true);
    let reached: Vec<Vec<Reached>> = KINDS.iter().map(|(kind, _)| all.reach_all(*kind, statistics)).collect();
    about.measures(report, &all, &reached);
    about.gains(report, &reached[0]);
    let pools = [
        Pool::new("narrow, K < N", lists, |sample| sample.all.is_some_and(|all| sample.k < all)),
        Pool::new("wide, K >= N", lists, |sample| sample.all.is_some_and(|all| sample.k >= all)),
    ];
    about.pools(report, "narrow and wide lists", &pools);
    let deepest = lists.iter().map(Vec::len).max().unwrap_or_default();
    let cutoffs: Vec<Pool> = (1..=deepest).map(|k| Pool::new(k.to_string(), lists, |sample| sample.k == k)).collect();
    let by_cutoff = about.pools(report, "each cut-off K", &cutoffs);
    about.segments(report, lists);
    let over_alpha = |family: Family| {
        let points = all.over_alphas(family, KINDS[0].0);
        let points = thinned(points.iter().map(|one| (one.alpha, one.agreement.value)));
        Series::over(Measure::Weighed(family).name(), points)
    };
    let curves = [Family::F, Family::Fe, Family::T, Family::TPrime].map(over_alpha);
    report.charts.push(chart::lines(
        Axes::new(format!("{} with {} over alpha", KINDS[0].0, quality.name()), "alpha", KINDS[0].1),
        &curves,
    )?);
    let over_k = |(at, measure): (usize, &Measure)| {
        let reached = by_cutoff.iter().enumerate();
        let points = reached.filter_map(|(k, reached)| Some((real(k + 1), reached.get(at)?.mean.value?)));
        Series::over(measure.name(), points)
    };
    let curves: Vec<Series> = Measure::ALL.iter().enumerate().map(over_k).collect();
    report.charts.push(chart::lines(
        Axes::new(format!("{} with {} over the cut-off", KINDS[0].0, quality.name()), "K", KINDS[0].1),
        &curves,
    )?);
    if report.verdict.is_empty() {
        report.verdict = verdict(&reached[0], &about);
    }
    Ok(())
}

/// Points at least [`STEP`] apart, and the last one.
fn thinned(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut last = None;
    for point in points {
        if kept.last().is_none_or(|before| point.0 - before.0 >= STEP) {
            kept.push(point);
            last = None;
        } else {
            last = Some(point);
        }
    }
    kept.extend(last);
    kept
}

/// The alpha of a cell. The grid is densest at both ends.
fn alpha(reached: &Reached) -> String {
    match reached.alpha {
        None => "–".to_owned(),
        Some(alpha) if alpha <= 0.0 || alpha >= 1.0 => format!("{alpha:.0}"),
        Some(alpha) if alpha < 0.001 => format!("{alpha:.1e}"),
        Some(alpha) if alpha > 0.999 => format!("1 - {:.1e}", 1.0 - alpha),
        Some(alpha) => format!("{alpha:.3}"),
    }
}

impl About<'_> {
    /// Every measure over all samples.
    fn measures(&self, report: &mut Report, all: &Pool, reached: &[Vec<Reached>]) {
        let quality = self.quality.name();
        let mut head = vec!["measure".to_owned(), "needs".to_owned()];
        head.extend(KINDS.iter().flat_map(|(_, sign)| [(*sign).to_owned(), "at alpha".to_owned()]));
        head.push("samples".to_owned());
        let rows = Measure::ALL.iter().enumerate().map(|(at, measure)| {
            let mut row = vec![measure.name().to_owned(), measure.needs().to_owned()];
            for ((_, sign), reached) in KINDS.iter().zip(reached) {
                let one = &reached[at];
                let name = format!("{sign} of {} with {quality}, {}", measure.name(), all.name);
                row.push(report.number(name, "", one.mean));
                row.push(alpha(one));
            }
            row.push(reached[0][at].samples.to_string());
            row
        });
        let rows = rows.collect();
        let caption = format!("Correlation of the measures of the top K with {quality}, {}", all.name);
        report.table(caption, head, rows);
    }

    /// Gains of the measures with an alpha over those without.
    fn gains(&self, report: &mut Report, reached: &[Reached]) {
        let (kind, sign) = KINDS[0];
        let plain: Vec<&Reached> = reached.iter().filter(|one| !matches!(one.measure, Measure::Weighed(_))).collect();
        let weighed = reached.iter().filter(|one| matches!(one.measure, Measure::Weighed(_)));
        let rows = weighed.map(|one| {
            let mut row = vec![one.measure.name().to_owned()];
            row.extend(plain.iter().map(|other| {
                let gain = one.gain(other, kind, self.statistics);
                let names = (one.measure.name(), other.measure.name());
                report.number(format!("{sign} of {} less {} with {}", names.0, names.1, self.quality.name()), "", gain)
            }));
            row
        });
        let rows = rows.collect();
        let head = std::iter::once("measure".to_owned());
        let head = head.chain(plain.iter().map(|one| format!("over {}", one.measure.name())));
        let caption = format!("{kind} with {} at the best alpha, less that of the others", self.quality.name());
        report.table(caption, head, rows);
    }

    /// One row per pool, with the best alpha of each.
    fn pools(&self, report: &mut Report, what: &str, pools: &[Pool]) -> Vec<Vec<Reached>> {
        let (kind, sign) = KINDS[0];
        let quality = self.quality.name();
        let (mut rows, mut every) = (Vec::new(), Vec::new());
        for pool in pools.iter().filter(|pool| pool.samples() > 0) {
            let reached = pool.reach_all(kind, self.statistics);
            let mut row = vec![pool.name.clone()];
            row.extend(reached.iter().map(|one| {
                report.number(
                    format!("{sign} of {} with {quality}, {what}: {}", one.measure.name(), pool.name),
                    "",
                    one.mean,
                )
            }));
            row.push(pool.samples().to_string());
            rows.push(row);
            every.push(reached);
        }
        let head = std::iter::once("K".to_owned()).chain(Measure::ALL.iter().map(|one| one.name().to_owned()));
        let head = head.chain(std::iter::once("samples".to_owned()));
        report.table(format!("{kind} with {quality}, {what}"), head, rows);
        every
    }

    /// Segments by K/N to one decimal: the answers, and T against F, nDCG and Fe.
    fn segments(&self, report: &mut Report, lists: &[Listed]) {
        let (kind, sign) = KINDS[0];
        let quality = self.quality.name();
        // Tenths are integers.
        let segment = |k: usize, all: Option<usize>| {
            let all = all.filter(|all| *all > 0)?;
            Some((10 * k + all / 2) / all)
        };
        let mut tenths: Vec<usize> =
            lists.iter().flatten().filter_map(|sample| segment(sample.k, sample.all)).collect();
        tenths.sort_unstable();
        tenths.dedup();
        let mut rows = Vec::new();
        for tenth in tenths {
            let name = format!("{:.1}", real(tenth) / 10.0);
            let pool = Pool::new(&name, lists, |sample| segment(sample.k, sample.all) == Some(tenth));
            if pool.samples() < LEAST {
                continue;
            }
            let reached = pool.reach_all(kind, self.statistics);
            let find = |measure: Measure| reached.iter().find(|one| one.measure == measure);
            let mut row = vec![name.clone()];
            let answers = pool.quality(self.statistics);
            row.push(report.number(format!("{quality}, K/N {name}"), "", answers));
            let t = find(Measure::Weighed(Family::T));
            for measure in COMPARED {
                let Some((t, other)) = t.zip(find(measure)) else { continue };
                let (figure, mean) = if measure == t.measure {
                    (format!("{sign} of T with {quality}, K/N {name}"), t.mean)
                } else {
                    let gain = t.gain(other, kind, self.statistics);
                    (format!("{sign} of T less {} with {quality}, K/N {name}", measure.name()), gain)
                };
                row.push(report.number(figure, "", mean));
            }
            row.push(pool.samples().to_string());
            rows.push(row);
        }
        if rows.is_empty() {
            return;
        }
        let head = ["K/N", "answers", "T", "T less F", "T less Fe", "T less T'", "T less nDCG", "samples"];
        let caption = format!("{quality} of the answers and {kind} by K/N, segments of at least {LEAST} samples");
        report.table(caption, head, rows);
    }
}

/// The columns of the segments.
const COMPARED: [Measure; 5] = [
    Measure::Weighed(Family::T),
    Measure::Weighed(Family::F),
    Measure::Weighed(Family::Fe),
    Measure::Weighed(Family::TPrime),
    Measure::Ndcg,
];

/// Decides if the number of relevant documents is needed.
fn verdict(reached: &[Reached], about: &About<'_>) -> String {
    let find = |measure: Measure| reached.iter().find(|one| one.measure == measure && one.mean.value.is_some());
    let (kind, quality) = (KINDS[0].0, about.quality.name());
    let Some(t) = find(Measure::Weighed(Family::T)) else {
        return format!(
            "Nothing can be compared: the {quality} of the answers, or the labels of the lists, do not vary."
        );
    };
    let begin = format!(
        "T, which needs no N, agrees with the {quality} of the answers to {kind} {} at alpha {} ({} samples of {} questions)",
        t.mean.cell(3),
        alpha(t),
        t.samples,
        t.mean.questions
    );
    let against = |measure: Measure| {
        let other = find(measure)?;
        let gain = t.gain(other, kind, about.statistics);
        let is = by_side(&gain, ["more than", "less than", "within the error of", "against"]);
        Some(format!("{is} {} ({})", measure.name(), other.mean.cell(3)))
    };
    // Precision is left out: T at alpha 1 is precision minus 1, so T at its best alpha never does worse.
    let others = [Measure::Weighed(Family::F), Measure::Recall, Measure::Ndcg];
    let others: Vec<String> = others.into_iter().filter_map(against).collect();
    let others = if others.is_empty() { String::new() } else { format!(": {}", others.join(", ")) };
    format!("{begin}{others}; T and F have the alpha that suits these lists best, which flatters them.")
}

pub(super) fn notes() -> Vec<String> {
    vec![
        format!(
            "A sample is a list with a cut-off K. The generator answered greedily from the first K passages, in at most \
             {ANSWER_TOKENS} tokens; its quality is the F1 of its words with the best reference answer, or the mean \
             log-probability of a token of the first reference answer after the same passages. The paper has a grade from 1 to 5, \
             given by GPT-4o-mini, of the answer against the one from all relevant documents."
        ),
        "Positives are the passages whose label reaches the threshold. N is the list's `relevant`; F and recall leave out lists \
         without it, and Fe those shorter than 2K. The paper makes its lists itself and knows N of all."
            .to_owned(),
        "Alpha is chosen for each coefficient and each set of samples, on the same samples, from the 702 of `metrics::recall`, as in \
         the paper; a measure with an alpha is flattered by that. Intervals keep the alpha, draw lists with all their cut-offs, \
         and take a fifth of the resamples."
            .to_owned(),
        "A difference is over the lists and cut-offs for which both measures are defined, so it may differ from that of the numbers shown. T at \
         alpha 1 is precision less 1, so at its best alpha T is never below precision."
            .to_owned(),
        "At one K, T, T' and precision order lists alike at every alpha, so they differ only if cut-offs are mixed. – means \
         that a measure is not defined, or that one side is constant."
            .to_owned(),
        "The paper draws one line per embedding model and data set, with K from 2 to 20. Here the lists are the retriever's, and K goes from 1 to \
         the number of passages taken."
            .to_owned(),
    ]
}
