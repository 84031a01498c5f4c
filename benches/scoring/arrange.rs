//! Effect of the arrangement of a context: log-likelihood of the reference answer under several orders of the ranked
//! passages, with position profiles from other questions of the same file. Also the quality of an adaptive run.

use std::path::Path;

use engine::Engine;
use engine::calibrate::Labelled;
use engine::types::{MoiOptions, RerankRequest, Reranked, Scheme};
use moi::profile::{Profile, Profiles, Subject, arrange};
use numeric::{mean, standard_deviation as sd};
use prefix_scheduler::call::Call;
use rerankd::config::Config;

use super::data::{self, Question};
use super::judge::{auc, reciprocal_rank};
use super::report::{self, Line};

fn labelled(question: &Question, cap: usize) -> Labelled {
    Labelled {
        question: question.question.clone(),
        answer: question.answers.first().cloned().unwrap_or_default(),
        passages: question.request_passages(),
        gold: question.passages.iter().map(|passage| passage.supporting).collect(),
        passage_tokens: Some(cap),
    }
}

async fn rank(engine: &Engine, question: &Question, cap: usize, scheme: Scheme) -> anyhow::Result<Reranked> {
    let request = RerankRequest {
        query: question.question.clone(),
        passages: question.request_passages(),
        moi: MoiOptions { scheme: Some(scheme), ..MoiOptions::default() },
        passage_tokens: Some(cap),
        ..RerankRequest::default()
    };
    Ok(engine.reranker.rerank(&Call::local(), request, None).await?)
}

struct Task {
    name: String,
    cap: usize,
    /// Questions whose profiles are measured, taken from the end of the file.
    calibrate: usize,
    /// Profile questions whose whole orders are fitted for the question profile.
    whole: usize,
}

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let path = data::option(arguments, "data").ok_or_else(|| anyhow::anyhow!("--data FILE is missing"))?;
    let number = |name: &str, default: usize| data::option(arguments, name).map_or(Ok(default), str::parse);
    let (most, calibrate, whole) = (number("questions", 100)?, number("calibrate", 50)?, number("whole", 10)?);
    let name = Path::new(path).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let all = data::read(Path::new(path), usize::MAX)?;
    anyhow::ensure!(most + calibrate <= all.len(), "{path}: has {} questions", all.len());
    let task = Task { name, cap: number("passage-tokens", 48)?, calibrate, whole };
    let runtime = tokio::runtime::Runtime::new()?;
    let config = Config::load(None, &[("passage_cache.memory_bytes".to_owned(), "off".to_owned())])?;
    rerankd::telemetry::install(&config, false);
    let engine = runtime.block_on(rerankd::app::engine(&config))?;
    report::about(&engine.generator()?.info);
    runtime.block_on(judge(&engine, &all, most, &task))
}

async fn profiles(engine: &Engine, questions: &[Question], task: &Task) -> anyhow::Result<Profiles> {
    let mut profiles = Profiles::default();
    for (index, question) in questions.iter().rev().take(task.calibrate).enumerate() {
        profiles
            .observe(Subject::Answer, &engine.positions.profile(&Call::local(), &labelled(question, task.cap)).await?);
        let scheme = if index < task.whole { Scheme::Latin } else { Scheme::Prefix };
        let fitted = rank(engine, question, task.cap, scheme).await?;
        for weights in fitted.fit.iter().flat_map(|fit| &fit.bias) {
            profiles.observe(Subject::Question, weights);
        }
        eprintln!("{} calibration {}", task.name, index + 1);
    }
    Ok(profiles)
}

async fn judge(engine: &Engine, all: &[Question], most: usize, task: &Task) -> anyhow::Result<()> {
    let known = profiles(engine, all, task).await?;
    for (subject, length, profile) in known.iter() {
        for (position, (value, error)) in
            profile.means().iter().zip(profile.standard_errors().unwrap_or_default()).enumerate()
        {
            let name = format!(
                "{}, {} {subject:?} profile of {length}: position {}",
                task.name,
                profile.count(),
                position + 1
            );
            Line::new(&name, *value, if subject == Subject::Answer { "nats" } else { "weight" }).spread(error).print();
        }
    }
    let stretched = |subject, n, length| {
        let profile: Option<&Profile> =
            known.iter().find(|(whose, l, _)| *whose == subject && *l == length).map(|(_, _, profile)| profile);
        profile.map(|profile| profile.interpolated(n))
    };
    let names = [
        "given",
        "descending",
        "reverse",
        "by answer profile",
        "by question profile of whole orders",
        "by question profile of depth 2",
        "no context",
    ];
    let mut gained: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let mut found: [Vec<(f64, f64, f64)>; 2] = [Vec::new(), Vec::new()];
    for (index, question) in all.iter().take(most).enumerate() {
        let n = question.passages.len();
        let labelled = labelled(question, task.cap);
        let mut ranking = Vec::new();
        for (scheme, found) in [Scheme::Adaptive, Scheme::Prefix].into_iter().zip(&mut found) {
            let answer = rank(engine, question, task.cap, scheme).await?;
            ranking = answer.passages.iter().map(|passage| passage.index).collect();
            let tokens = answer.usage.tokens as f64;
            found.push((auc(&labelled.gold, &ranking), reciprocal_rank(&labelled.gold, &ranking), tokens));
        }
        let by =
            |weights: Option<Vec<f64>>| weights.map_or_else(|| ranking.clone(), |weights| arrange(&ranking, &weights));
        let orders = [
            (0..n).collect(),
            ranking.clone(),
            ranking.iter().rev().copied().collect(),
            by(stretched(Subject::Answer, n, n)),
            by(stretched(Subject::Question, n, n)),
            by(stretched(Subject::Question, n, 2)),
            Vec::new(),
        ];
        let scores = engine.positions.likelihoods(&Call::local(), &labelled, &orders).await?;
        for (gained, score) in gained.iter_mut().zip(&scores) {
            gained.push(*score);
        }
        eprintln!("{} {}: {:.1} against {:.1}", task.name, index + 1, scores[3], scores[0]);
    }
    for (name, found) in ["ADAPTIVE", "PREFIX"].into_iter().zip(&found) {
        let column = |pick: fn(&(f64, f64, f64)) -> f64| mean(&found.iter().map(pick).collect::<Vec<_>>());
        let place = format!("{}, {most} questions: {name}", task.name);
        Line::new(&format!("{place}: AUC"), column(|row| row.0), "").print();
        Line::new(&format!("{place}: MRR"), column(|row| row.1), "").print();
        Line::new(&format!("{place}: tokens"), column(|row| row.2), "tokens a question").print();
    }
    for (name, scores) in names.iter().zip(&gained) {
        let apart: Vec<f64> = scores.iter().zip(&gained[0]).map(|(score, given)| score - given).collect();
        let error = sd(&apart) / (apart.len() as f64).sqrt();
        let place = format!("{}, {most} questions: answer's log-likelihood, {name}", task.name);
        Line::new(&place, mean(scores), "nats").spread(sd(scores) / (scores.len() as f64).sqrt()).print();
        Line::new(&format!("{place}, over the given order"), mean(&apart), "nats").spread(error).print();
    }
    Ok(())
}
