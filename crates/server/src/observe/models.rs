//! Metrics of the models: the workers' counters, read for each page.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use crate::{features, target};
use engine::Engine;
use engine::live::{self, LiveFigures, Skip};
use engine::models::GeneratorModel;
use engine::types::Role;
use numeric::real;
use prefix_scheduler::scheduler::generator::Stats;
use prefix_scheduler::warm::Figures;

/// All metrics of the models and of the build.
pub(super) fn families(engine: &Engine) -> Vec<MetricFamily> {
    let mut page = Page::default();
    build(&mut page);
    for state in engine.models().states() {
        let labels = [("model", label(&state.name)), ("role", state.role.name())];
        let ready = if state.serves { 1.0 } else { 0.0 };
        page.gauge("rerankd_model_ready", "1 if the model would serve a request now, else 0.", &labels, ready);
    }
    for generator in engine.models().generators() {
        generator_metrics(&mut page, generator);
    }
    if let Some(judge) = engine.models().judge_if_any() {
        let name = label(&judge.model().name);
        let help = "Text pairs for entailment: judged by the model, or found in the cache.";
        for (source, pairs) in [("model", judge.judged()), ("cache", judge.kept())] {
            let labels = [("model", name), ("source", source)];
            page.counter("rerankd_entailment_pairs_total", help, &labels, count(pairs));
        }
        restarts(&mut page, Role::Entailment, name, judge.restarts());
        info(&mut page, name, &judge.sha256(), Role::Entailment, ["", ""]);
    }
    for (role, scorer) in engine.models().scorers() {
        let name = label(&scorer.model().name);
        let help = "Passages that a reranker or an embedding model scored.";
        let labels = [("model", name), ("role", role.name())];
        page.counter("rerankd_passages_scored_total", help, &labels, count(scorer.scored()));
        restarts(&mut page, *role, name, scorer.restarts());
        info(&mut page, name, &scorer.sha256(), *role, ["", ""]);
    }
    live(&mut page, &engine.live.figures());
    page.families
}

/// Retrieval on live traffic. Shown if it is off, too, because a rate needs an initial zero.
fn live(page: &mut Page, figures: &LiveFigures) {
    let help = "Reduction of the semantic entropy of answers by the first passages of sampled rankings.";
    let bounds = live::BOUNDS.into_iter();
    page.histogram("rerankd_live_entropy_reduction_nats", help, &[], (bounds, &figures.reductions), figures.sum);
    let help = "Sampled rankings that were not measured.";
    for (reason, number) in Skip::ALL.iter().zip(figures.skipped) {
        page.counter("rerankd_live_skipped_total", help, &[("reason", reason.name())], count(number));
    }
}

/// A model's name in labels. For a configured path it is the file name, as in answers and for loaded models.
pub(super) fn label(name: &str) -> &str {
    Path::new(name).file_name().and_then(|file| file.to_str()).unwrap_or(name)
}

/// A counter without labels.
pub(super) fn counter(name: &str, help: &str, value: u64) -> MetricFamily {
    let mut page = Page::default();
    page.counter(name, help, &[], count(value));
    page.families.remove(0)
}

fn build(page: &mut Page) {
    let target = target();
    let features = features();
    let labels =
        [("version", env!("CARGO_PKG_VERSION")), ("target", target.as_str()), ("features", &features.join(","))];
    page.gauge("rerankd_build_info", "Always 1; the labels describe the build.", &labels, 1.0);
}

fn restarts(page: &mut Page, role: Role, model: &str, number: u64) {
    let help = "Failures of a model; it is reloaded after each.";
    page.counter("rerankd_worker_restarts_total", help, &[("model", model), ("role", role.name())], count(number));
}

/// `encoding` and `adapter` are empty for a model without one. Adds nothing while the file is unknown.
fn info(page: &mut Page, name: &str, sha256: &str, role: Role, [encoding, adapter]: [&str; 2]) {
    if sha256.is_empty() {
        return;
    }
    let labels =
        [("name", name), ("sha256", sha256), ("role", role.name()), ("encoding", encoding), ("adapter", adapter)];
    page.gauge("rerankd_model_info", "Always 1; the labels identify the served file.", &labels, 1.0);
}

fn generator_metrics(page: &mut Page, generator: &GeneratorModel) {
    let (scheduler, name) = (generator.scheduler(), label(generator.name()));
    let (stats, labels) = (scheduler.stats(), [("model", name)]);
    let size = |counter: &AtomicUsize| real(counter.load(Ordering::Relaxed));
    let number = |counter: &AtomicU64| count(counter.load(Ordering::Relaxed));
    for (metric, help, value) in [
        ("rerankd_requests_running", "Plans running in the generator.", size(&stats.active)),
        ("rerankd_requests_waiting", "Plans in the generator's queue.", size(&stats.waiting)),
        ("rerankd_backlog_tokens", "Admitted tokens that are not evaluated yet.", real(scheduler.ledger().total())),
    ] {
        page.gauge(metric, help, &labels, value);
    }
    let capacity = scheduler.capacity();
    let used = capacity.map_or(0.0, |capacity| size(&stats.cells) / real(capacity.cells.max(1)));
    page.gauge(
        "rerankd_kv_cache_used_ratio",
        "Share of the KV cache that is reserved for plans or holds prompt prefixes.",
        &labels,
        used,
    );
    let help = "1 while the next plan waits for cells or sequences of the KV cache, else 0.";
    page.gauge("rerankd_kv_cache_full", help, &labels, size(&stats.full));
    let batch = capacity.map_or(0.0, |capacity| real(capacity.batch));
    page.gauge("rerankd_batch_tokens", "Most tokens of a step; 0 while the model loads.", &labels, batch);
    for (metric, help, value) in [
        (
            "rerankd_requests_abandoned_total",
            "Plans dropped because their caller disconnected or their deadline passed.",
            number(&stats.abandoned),
        ),
        ("rerankd_model_busy_seconds_total", "Time inside the generator.", number(&stats.busy_micros) / 1e6),
    ] {
        page.counter(metric, help, &labels, value);
    }
    let help = "Tokens of plans: evaluated, cached by earlier requests and rounds, and naive (without prefix sharing).";
    let kinds = [("evaluated", &stats.tokens), ("cached", &stats.cached_tokens), ("naive", &stats.naive_tokens)];
    for (kind, tokens) in kinds {
        page.counter("rerankd_tokens_total", help, &[("model", name), ("kind", kind)], number(tokens));
    }
    page.steps(name, stats);
    if let Some(store) = scheduler.store() {
        states(page, name, &store.figures());
    }
    restarts(page, generator.role(), name, scheduler.restarts());
    // Unknown until the file is loaded.
    if let Ok(served) = generator.get() {
        let model = &served.info;
        let adapter = model.adapter.as_ref();
        let adapter = adapter.map_or_else(String::new, |adapter| format!("{}x{}", adapter.sha256, adapter.scale));
        info(page, &model.name, &model.sha256, generator.role(), [&model.encoding, &adapter]);
    }
}

/// The passage cache.
fn states(page: &mut Page, model: &str, figures: &Figures) {
    let labels = [("model", model)];
    for (metric, help, value) in [
        ("rerankd_passage_cache_entries", "Cached passages in memory.", figures.states),
        ("rerankd_passage_cache_bytes", "Bytes of the cached passages in memory.", figures.bytes),
        ("rerankd_passage_cache_pinned_bytes", "Bytes of cached passages that running requests pin.", figures.held),
        (
            "rerankd_passage_cache_limit_bytes",
            "Most bytes of cached passages in memory (passage_cache.memory_bytes).",
            figures.limit,
        ),
    ] {
        page.gauge(metric, help, &labels, count(value));
    }
    let help = "Cached passages that requests looked up: found in memory (hit), or not (miss).";
    for (result, number) in [("hit", figures.hits), ("miss", figures.misses)] {
        let labels = [("model", model), ("result", result)];
        page.counter("rerankd_passage_cache_lookups_total", help, &labels, count(number));
    }
    for (metric, help, number) in [
        ("rerankd_passage_cache_evictions_total", "Cached passages that were evicted.", figures.evictions),
        ("rerankd_passage_cache_disk_reads_total", "Cached passages that were read from disk.", figures.read),
    ] {
        page.counter(metric, help, &labels, count(number));
    }
}

/// Families in the order of their first metric.
#[derive(Default)]
struct Page {
    families: Vec<MetricFamily>,
}

impl Page {
    fn add(&mut self, name: &str, help: &str, kind: MetricType, labels: &[(&str, &str)], mut metric: Metric) {
        let pair = |(name, value): &(&str, &str)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        };
        metric.set_label(labels.iter().map(pair).collect());
        if let Some(family) = self.families.iter_mut().find(|family| family.name() == name) {
            family.mut_metric().push(metric);
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(vec![metric]);
        self.families.push(family);
    }

    fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let (mut metric, mut gauge) = (Metric::default(), Gauge::default());
        gauge.set_value(value);
        metric.set_gauge(gauge);
        self.add(name, help, MetricType::GAUGE, labels, metric);
    }

    fn counter(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let (mut metric, mut counter) = (Metric::default(), Counter::default());
        counter.set_value(value);
        metric.set_counter(counter);
        self.add(name, help, MetricType::COUNTER, labels, metric);
    }

    fn steps(&mut self, model: &str, stats: &Stats) {
        let sizes = stats.step_sizes.each_ref().map(|size| size.load(Ordering::Relaxed));
        let bounds = std::iter::successors(Some(1.0), |bound| Some(bound * 2.0));
        let sum = count(stats.tokens.load(Ordering::Relaxed));
        let help = "Tokens of a step of the generator.";
        self.histogram("rerankd_step_tokens", help, &[("model", model)], (bounds, &sizes), sum);
    }

    /// `numbers` are the observations by bucket; the last bucket has no upper bound.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        (bounds, numbers): (impl Iterator<Item = f64>, &[u64]),
        sum: f64,
    ) {
        let (mut histogram, mut cumulative) = (Histogram::default(), 0);
        let below = numbers.split_last().map_or(numbers, |(_, below)| below);
        let bucket = |(number, bound): (&u64, f64)| {
            cumulative += number;
            let mut bucket = Bucket::default();
            bucket.set_cumulative_count(cumulative);
            bucket.set_upper_bound(bound);
            bucket
        };
        histogram.set_bucket(below.iter().zip(bounds).map(bucket).collect());
        histogram.set_sample_count(numbers.iter().sum());
        histogram.set_sample_sum(sum);
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        self.add(name, help, MetricType::HISTOGRAM, labels, metric);
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no integers")]
const fn count(value: u64) -> f64 {
    value as f64
}
