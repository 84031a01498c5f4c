//! Scores the prompts of all designs for each question with the generator, and stores every score.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use engine::Engine;
use engine::methods::query_prompt::{QueryPrompt, overhead};
use engine::prompt::PassageTokens;
use moi::design::{Design, orders, prefixes, pruned};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::weights;
use prefix_scheduler::plan::{NodeId, Plan, Segment};
use rerankd::config::Config;
use serde::{Deserialize, Serialize};

use super::data;

/// One question's scores.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub file: String,
    pub id: String,
    pub gold: Vec<bool>,
    pub lengths: Vec<usize>,
    pub query_tokens: usize,
    /// Tokens of a prompt that belong neither to passages nor to the query.
    pub frame: usize,
    /// (order, log P(query | order), log P(order)); the last is absent if it was not requested.
    pub scores: Vec<(Vec<usize>, f64, Option<f64>)>,
    pub seconds: f64,
    pub tokens: usize,
    /// The designs and the passage length in tokens that were scored.
    #[serde(default)]
    pub task: String,
    /// SHA-256 of the model file that ran; with an adapter `+`, its SHA-256, `x` and the scale follow.
    #[serde(default)]
    pub model: String,
}

pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let path = data::option(arguments, "data").ok_or_else(|| anyhow::anyhow!("--data FILE is missing"))?;
    let out = data::option(arguments, "out").ok_or_else(|| anyhow::anyhow!("--out FILE is missing"))?;
    let number = |name: &str, default: usize| data::option(arguments, name).map_or(Ok(default), str::parse);
    let (most, skip, cap) = (number("questions", 100)?, number("skip", 0)?, number("passage-tokens", 64)?);
    let designs = data::option(arguments, "designs").unwrap_or("latin");
    let task = format!("{designs}, {cap} tokens");
    let families: Vec<Family> = designs
        .split(',')
        .map(|name| Family::parse(name).ok_or_else(|| anyhow::anyhow!("--designs: unknown {name:?}")))
        .collect::<Result<_, _>>()?;
    let questions = data::read(Path::new(path), skip + most)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let config = Config::load(None, &[("passage_cache.memory_bytes".to_owned(), "off".to_owned())])?;
    rerankd::telemetry::install(&config, false);
    let engine = runtime.block_on(rerankd::app::engine(&config))?;
    let info = &engine.generator()?.info;
    let model = weights(&info.running_sha256, info.adapter.as_ref());
    let (mut out, done) = reopen(Path::new(out))?;
    let name = Path::new(path).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for (index, question) in questions.iter().enumerate().skip(skip) {
        let here = |record: &Record| {
            (&record.file, &record.id, &record.task, &record.model) == (&name, &question.id, &task, &model)
        };
        if done.iter().any(here) {
            continue;
        }
        let scored = runtime.block_on(score(&engine, question, &name, cap, &families))?;
        let record = Record { task: task.clone(), model: model.clone(), ..scored };
        eprintln!(
            "{name} {}: {} scores, {} tokens, {:.1} s",
            index + 1,
            record.scores.len(),
            record.tokens,
            record.seconds
        );
        writeln!(out, "{}", serde_json::to_string(&record)?)?;
    }
    Ok(())
}

/// Opens the file for appending and returns its contents, so that an interrupted run of hours can be resumed. Removes
/// an incomplete last line.
fn reopen(path: &Path) -> anyhow::Result<(std::fs::File, Vec<Record>)> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::File::options().create(true).read(true).append(true).open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    file.set_len(whole as u64)?;
    let records = text[..whole]
        .lines()
        .enumerate()
        .map(|(number, line)| serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), number + 1)));
    Ok((file, records.collect::<Result<_, _>>()?))
}

/// Prompts to score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Every prefix of the orders of a Latin square, without log P(order) unless another family needs it.
    Latin,
    /// Rotations of all passages.
    Cyclic,
    /// The given number of random orders.
    Random(usize),
    /// Three copies of a Latin square that share five columns.
    Trie,
    /// Rotations truncated to five passages.
    Pruned,
}

impl Family {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "latin" => Self::Latin,
            "cyclic" => Self::Cyclic,
            "trie" => Self::Trie,
            "pruned" => Self::Pruned,
            _ => Self::Random(name.strip_prefix("random:")?.parse().ok()?),
        })
    }

    fn prompts(self, n: usize) -> Vec<Vec<usize>> {
        let orders = |design, count| orders(design, n, count, 0, &|| false).unwrap_or_default();
        match self {
            Self::Latin => prefixes(&orders(Design::Latin, n), n),
            Self::Cyclic => orders(Design::Cyclic, n),
            Self::Random(count) => orders(Design::Random, count),
            Self::Trie => orders(TRIE, TRIE.default_orders(n)),
            Self::Pruned => pruned(n, PRUNED, None),
        }
    }
}

/// Shared columns and copies of the trie.
pub const TRIE: Design = Design::Trie { shared: 5, copies: 3 };
/// Number of passages in a pruned prompt.
pub const PRUNED: usize = 5;

async fn score(
    engine: &Engine,
    question: &data::Question,
    file: &str,
    cap: usize,
    families: &[Family],
) -> anyhow::Result<Record> {
    let started = Instant::now();
    let generator = engine.generator()?;
    let (tokenizer, language) = (generator.tokenizer(), &generator.language);
    let query = language.query(&question.question);
    let prompt = QueryPrompt::new(language, &query);
    let tokens: Vec<Arc<[i32]>> = question
        .passages
        .iter()
        .map(|passage| PassageTokens::new(tokenizer, &passage.title, &passage.text).cut(cap).0.into())
        .collect();
    let n = tokens.len();
    let random = families.iter().any(|family| *family != Family::Latin);
    let mut wanted: Vec<Vec<usize>> = families.iter().flat_map(|family| family.prompts(n)).collect();
    let mut plan = Plan::new();
    let mut paths: HashMap<Vec<usize>, Vec<NodeId>> = HashMap::new();
    for order in &wanted {
        let mut segments = vec![prompt.prefix.clone()];
        segments.extend(order.iter().map(|&p| {
            let tokens = Arc::clone(&tokens[p]);
            if random { Segment::scored(tokens, 0) } else { Segment::context(tokens) }
        }));
        segments.push(prompt.query.clone());
        paths.insert(order.clone(), plan.add(&segments));
    }
    let outcome = engine.generator()?.scheduler.run(Arc::new(plan), &Call::local(), None).await?;
    let sum = |nodes: &[NodeId]| nodes.iter().flat_map(|node| &outcome.scores[node.0]).sum::<f64>();
    wanted.sort();
    wanted.dedup();
    let scores = wanted
        .into_iter()
        .map(|order| {
            let path = &paths[&order];
            let (inner, last) = path.split_at(path.len() - 1);
            let joint = random.then(|| sum(inner));
            (order, sum(last), joint)
        })
        .collect();
    Ok(Record {
        file: file.to_owned(),
        id: question.id.clone(),
        gold: question.passages.iter().map(|passage| passage.supporting).collect(),
        lengths: tokens.iter().map(|tokens| tokens.len()).collect(),
        query_tokens: query.len(),
        frame: overhead(language),
        scores,
        seconds: started.elapsed().as_secs_f64(),
        tokens: outcome.tokens,
        task: String::new(),
        model: String::new(),
    })
}
