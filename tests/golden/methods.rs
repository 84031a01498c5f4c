//! Ranking methods on the default generator against independent programs in golden/generator. methods.py writes
//! out the prompts and evaluates each separately with numpy. orders.py and orders_random_weights.py give the orders of
//! methods without utilities, served.py the served default, and moi.py the fits of MOI with another solver.

use crate::common;
use engine::methods;
use engine::prompt::PassageTokens;
use engine::types::{FusionMode, MoiOptions, Passage, RerankRequest, Scheme};
use rag_metrics::agreement::Correlation;
use rerankd::config::Config;
use serde_json::Value;

/// Largest difference from numpy in 32 bits, in nats per scored token. `ONE_TOKEN` is the bound of one token in
/// tests/real/generator.rs, for a utility of one token; `OF_MANY`, a fifth of it, is for the mean of many tokens.
const ONE_TOKEN: f64 = 0.25;
const OF_MANY: f64 = 0.05;
/// Largest differences of a fit: utilities in nats, and position weights.
const OF_UTILITIES: f64 = 0.8;
const OF_WEIGHTS: f64 = 0.005;
/// Largest change of a difference of two gains of FIRST between plans of other shapes.
const ROUNDED: f64 = 0.05;
/// Largest difference of a cosine: processors round 8-bit products differently.
const OF_COSINES: f64 = 0.01;
/// Largest difference of a signal's contribution, in standard deviations of the list.
const OF_SIGNALS: f64 = 0.08;
/// Least correlation of a list's utilities with the program's.
const LEAST_CORRELATION: f64 = 0.8;

fn golden() -> Value {
    read("methods.json")
}

fn read(file: &str) -> Value {
    let path = format!("{}/tests/golden/generator/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn passages(golden: &Value) -> Vec<Passage> {
    let passage = |(number, passage): (usize, &Value)| Passage {
        id: number.to_string(),
        title: passage["title"].as_str().unwrap().into(),
        text: passage["text"].as_str().unwrap().into(),
        ..Passage::default()
    };
    golden["passages"].as_array().unwrap().iter().enumerate().map(passage).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Largest difference of a utility, by the tokens that it adds up.
fn allowed(golden: &Value, method: &str) -> f64 {
    let count = |name: &str| golden["tokens"][name].as_array().unwrap().len() as f64;
    match method {
        "query-generation" | "listwise-bayes" => OF_MANY * count("query"),
        "answer-likelihood" | "leave-one-out" | "context-cite" => OF_MANY * count("answer"),
        "bayes-saliency" | "long-llm-lingua" => OF_MANY,
        _ => ONE_TOKEN,
    }
}

#[tokio::test]
async fn utilities_agree_with_an_independent_program() {
    let engine = common::engine_of_16_bits().await;
    let golden = golden();
    let language = &common::generator(&engine).language;
    let (query, passages) = (golden["query"].as_str().unwrap(), passages(&golden));
    let tokens: Vec<i32> = serde_json::from_value(golden["tokens"]["query"].clone()).unwrap();
    assert_eq!(language.query(query), tokens, "the query's tokens");
    for (passage, expected) in passages.iter().zip(golden["tokens"]["passages"].as_array().unwrap()) {
        let tokens = PassageTokens::new(language.tokenizer.as_ref(), &passage.title, &passage.text).cut(usize::MAX).0;
        assert_eq!(tokens, serde_json::from_value::<Vec<i32>>(expected.clone()).unwrap(), "{}", passage.title);
    }
    let mut failed = Vec::new();
    for (name, expected) in golden["utilities"].as_object().unwrap() {
        let request = RerankRequest {
            query: query.into(),
            passages: passages.clone(),
            method: methods::find(name),
            ..RerankRequest::default()
        };
        assert!(request.method.is_some(), "{name}");
        let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
        let mut utilities = vec![f64::NAN; passages.len()];
        for placed in &answer.passages {
            utilities[placed.index] = placed.utility;
        }
        // If a choice rests on less than the rounding, both of its outcomes are right.
        let outcomes = [Some(expected), golden["alternatives"].get(name)];
        let apart = |expected: &Value| {
            let expected = numbers(expected);
            let largest =
                utilities.iter().zip(&expected).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f64::max);
            (largest, Correlation::Pearson.of(&utilities, &expected).map_or(0.0, |agreement| agreement.value))
        };
        let nearest = outcomes.into_iter().flatten().map(apart).min_by(|one, other| one.0.total_cmp(&other.0));
        let (largest, correlation) = nearest.unwrap();
        let allowed = allowed(&golden, name);
        println!("{name}: {largest:.4} of {allowed:.3} nats, r {correlation:.4}; {utilities:.3?} {expected}");
        // Utilities may lie nearer to each other than the bound, so the correlation must hold, too.
        if correlation < LEAST_CORRELATION {
            failed.push(format!("{name}: r {correlation:.4}"));
        }
        if utilities.iter().any(|utility| utility.is_nan()) || largest > allowed {
            failed.push(format!("{name}: {largest:.4} > {allowed:.4}"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Every decision of an order has a margin of at least half a nat: twice the largest difference seen in the sum over a
/// query's tokens, with BF16.
#[tokio::test]
async fn orders_agree_with_an_independent_program() {
    let engine = common::engine_of_16_bits().await;
    let (golden, orders) = (golden(), read("orders.json"));
    let query = golden["query"].as_str().unwrap();
    for (name, expected) in orders["orders"].as_object().unwrap() {
        assert!(expected["margin"].as_f64().unwrap() > 0.5, "{name}");
        let mut passages = passages(&golden);
        for (passage, score) in passages.iter_mut().zip(expected["retriever_scores"].as_array().into_iter().flatten()) {
            passage.retriever_score = score.as_f64();
        }
        let mut request =
            RerankRequest { query: query.into(), passages, method: methods::find(name), ..RerankRequest::default() };
        assert!(request.method.is_some(), "{name}");
        if name == "cascade" {
            // Only its second step: the third would follow only near ties.
            request.fusion.mode = FusionMode::On;
            request.moi.settle_probability = Some(0.5);
        }
        let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
        let order: Vec<usize> = answer.passages.iter().map(|placed| placed.index).collect();
        assert_eq!(serde_json::to_value(order).unwrap(), expected["order"], "{name}");
    }
}

/// The served default: cosines of the default embedding model, the retriever's scores and the default generator
/// (golden/generator/served.py). Its first and second step; nothing counts as nearly tied.
#[tokio::test]
async fn the_served_fusion_agrees_with_an_independent_program() {
    let engine = common::engine_of_16_bits().await;
    let (golden, served) = (golden(), read("served.json"));
    assert!(served["margin"].as_f64().unwrap() > 2.0 * OF_SIGNALS, "one signal of either may be off");
    let mut passages = passages(&golden);
    for (passage, score) in passages.iter_mut().zip(numbers(&served["retriever_scores"])) {
        passage.retriever_score = Some(score);
    }
    let query = golden["query"].as_str().unwrap().to_owned();
    let request = RerankRequest { query, passages, ..RerankRequest::default() };
    let embedding = RerankRequest { method: methods::find("embedding"), ..request.clone() };
    let cosines = engine.reranker.rerank(&common::call(), embedding, None).await.unwrap();
    for placed in &cosines.passages {
        let expected = numbers(&served["cosines"])[placed.index];
        assert!((placed.utility - expected).abs() < OF_COSINES, "{}: {} {expected}", placed.index, placed.utility);
    }
    let settled = MoiOptions { settle_probability: Some(0.5), ..MoiOptions::default() };
    let answer =
        engine.reranker.rerank(&common::call(), RerankRequest { moi: settled, ..request }, None).await.unwrap();
    assert_eq!((answer.fusion.unwrap().weight, answer.fusion.unwrap().embedding), (0.35, Some(0.6)));
    for placed in &answer.passages {
        let signals = placed.score_parts.unwrap();
        let parts = [("model", signals.model), ("embedding", signals.embedding), ("source", signals.source)];
        for (name, part) in parts {
            let (part, expected) = (part.unwrap(), numbers(&served["signals"][name])[placed.index]);
            assert!((part - expected).abs() < OF_SIGNALS, "{name} of {}: {part}, not {expected}", placed.index);
        }
    }
    let order: Vec<usize> = answer.passages.iter().map(|placed| placed.index).collect();
    assert_eq!(serde_json::to_value(order).unwrap(), served["order"]);
}

/// README: the generator by itself prefers another passage, and the embedding model finds the one that answers. The
/// first place depends on rounding, so it is not checked.
#[tokio::test]
async fn the_demonstrations_passage_is_found_by_the_embedding_model() {
    let engine = common::engine_of_16_bits().await;
    let read =
        |file: &str| std::fs::read_to_string(format!("{}/models/demo/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let passage = |line: &str| {
        let given: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        Passage { id: text("id"), title: text("title"), text: text("text"), retriever_score: None }
    };
    let passages: Vec<Passage> = read("passages.jsonl").lines().map(passage).collect();
    let query = read("question.txt").trim().to_owned();
    let of = |id: &str| passages.iter().position(|passage| passage.id == id).unwrap();
    let (answers, other) = (of("mill-power"), of("senn-course"));
    let request = RerankRequest { query, passages: passages.clone(), ..RerankRequest::default() };
    let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
    let placed = |index: usize| answer.passages.iter().position(|placed| placed.index == index).unwrap();
    assert!(placed(answers) < 3, "{}", placed(answers));
    let signals = |index: usize| answer.passages[placed(index)].score_parts.unwrap();
    let (ours, theirs) = (signals(answers), signals(other));
    assert!(ours.embedding > theirs.embedding && ours.model < theirs.model, "{ours:?} {theirs:?}");
}

/// The default generator keeps the input order in listwise and bubble sort, so a method without effect would agree with
/// it. Random weights move passages (golden/generator/orders_random_weights.py). Cells of 16 bits move a label by less
/// than the margin.
#[tokio::test]
async fn orders_by_random_weights_agree_with_an_independent_program() {
    let store = tempfile::tempdir().unwrap();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/adapters/merged.gguf");
    let store = store.path().display().to_string();
    let settings =
        [("generator.model", model), ("models.store", &store), ("entailment.model", "off"), ("embedding.model", "off")];
    let settings: Vec<_> = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let engine = rerankd::app::engine(&Config::load(None, &settings).unwrap()).await.unwrap();
    let mut moved = std::collections::BTreeMap::<String, usize>::new();
    for expected in read("orders_random_weights.json").as_array().unwrap() {
        let name = expected["method"].as_str().unwrap();
        assert!(expected["margin"].as_f64().unwrap() >= 0.06, "{expected}");
        let text = |text: &Value| Passage { text: text.as_str().unwrap().into(), ..Passage::default() };
        let numbered = |(number, passage): (usize, Passage)| Passage { id: number.to_string(), ..passage };
        let request = RerankRequest {
            query: expected["query"].as_str().unwrap().into(),
            passages: expected["passages"].as_array().unwrap().iter().map(text).enumerate().map(numbered).collect(),
            method: methods::find(name),
            ..RerankRequest::default()
        };
        assert!(request.method.is_some(), "{name}");
        let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
        let order: Vec<usize> = answer.passages.iter().map(|placed| placed.index).collect();
        *moved.entry(name.to_owned()).or_default() += usize::from(!order.is_sorted());
        assert_eq!(serde_json::to_value(order).unwrap(), expected["order"], "{name}, {}", expected["query"]);
    }
    let lists = ["listwise", "pairwise-sliding", "setwise"].map(|method| moved[method]);
    assert_eq!(lists, [7, 5, 6], "lists that each method moved");
}

/// The answers to all orders of three passages. A step of 32 tokens may be nearly tied, so one answer may differ.
#[tokio::test]
async fn self_consistency_agrees_with_an_independent_program() {
    let engine = common::engine_of_16_bits().await;
    let (golden, orders) = (golden(), read("orders.json"));
    let expected = &orders["self_consistency"];
    let request = RerankRequest {
        query: golden["query"].as_str().unwrap().into(),
        passages: passages(&golden)[..3].to_vec(),
        method: methods::find("self-consistency"),
        ..RerankRequest::default()
    };
    let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
    let told = answer.warnings.iter().find(|warning| warning.contains("orders gave the answer")).unwrap();
    println!("{told}; {expected}");
    let (count, text) = told.split_once(" of 6 orders gave the answer ").unwrap();
    let share = count.parse::<f64>().unwrap() / 6.0;
    assert!((share - expected["share"].as_f64().unwrap()).abs() <= 1.01 / 6.0, "{told}");
    let plain: String = text.to_lowercase().chars().filter(|c| c.is_alphanumeric() || *c == ' ').collect();
    let words: Vec<&str> = plain.split(' ').filter(|word| !["", "a", "an", "the"].contains(word)).collect();
    assert_eq!(words.join(" "), expected["consensus"].as_str().unwrap());
}

/// Fits of all orders of three passages. Rounding of the kernels moves a fit of whole orders by more than its scores:
/// the scores of these orders differ by four nats, and utilities by the spread of the scores over the spread of the
/// weights.
#[tokio::test]
async fn mixture_of_interventions_agrees_with_an_independent_program() {
    let engine = common::engine_of_16_bits().await;
    let (golden, fits) = (golden(), read("moi.json"));
    for (name, depth, observations) in [("whole_orders", None, 6), ("with_beginnings", Some(3), 15)] {
        let request = RerankRequest {
            query: golden["query"].as_str().unwrap().into(),
            passages: passages(&golden)[..3].to_vec(),
            method: methods::find("moi"),
            moi: MoiOptions { scheme: Some(Scheme::Random), depth, ..MoiOptions::default() },
            ..RerankRequest::default()
        };
        let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
        let fit = answer.fit.unwrap();
        assert_eq!(fit.observations, observations, "{name}");
        let expected = numbers(&fits[name]["utilities"]);
        let utilities: Vec<f64> =
            (0..3).map(|index| answer.passages.iter().find(|placed| placed.index == index).unwrap().utility).collect();
        let apart = |ours: &[f64], theirs: &[f64]| -> f64 {
            assert_eq!(ours.len(), theirs.len());
            ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f64::max)
        };
        let weights: Vec<Vec<f64>> = fits[name]["bias"].as_array().unwrap().iter().map(numbers).collect();
        let largest = fit.bias.iter().zip(&weights).map(|(ours, theirs)| apart(ours, theirs)).fold(0.0, f64::max);
        println!("{name}: {utilities:.3?} {expected:.3?}; {:.4?} {weights:.4?}; {largest}", fit.bias);
        assert_eq!(fit.bias.len(), weights.len());
        assert!(apart(&utilities, &expected) < OF_UTILITIES && largest < OF_WEIGHTS, "{name}");
    }
}

/// The central ranking of `FIRST` on the five rotations, found by comparison with all permutations. Differences of two
/// labels within the rounding of the kernels count for either side.
#[tokio::test]
async fn permutation_self_consistency_is_the_central_ranking_of_its_rotations() {
    let engine = common::engine_of_16_bits().await;
    let golden = golden();
    let (all, n) = (passages(&golden), 5);
    let ask = async |method: &str, order: &[usize]| {
        let passages = order.iter().map(|index| all[*index].clone()).collect();
        let query = golden["query"].as_str().unwrap().into();
        let request = RerankRequest { query, passages, method: methods::find(method), ..RerankRequest::default() };
        let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
        answer.passages.iter().map(|placed| (order[placed.index], placed.utility)).collect::<Vec<_>>()
    };
    let (mut sure, mut near) = (Vec::new(), Vec::new());
    for shift in 0..n {
        let ranked = ask("first", &(0..n).map(|place| (place + shift) % n).collect::<Vec<_>>()).await;
        for (at, (winner, high)) in ranked.iter().enumerate() {
            for (loser, low) in &ranked[at + 1..] {
                if high - low < ROUNDED { &mut near } else { &mut sure }.push((*winner, *loser));
            }
        }
    }
    let answer = ask("permutation-self-consistency", &[0, 1, 2, 3, 4]).await;
    let order: Vec<usize> = answer.iter().map(|(index, _)| *index).collect();
    let mut permutations: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..n {
        let longer = |order: &Vec<usize>| {
            (0..n).filter(|next| !order.contains(next)).map(|next| [&order[..], &[next]].concat()).collect::<Vec<_>>()
        };
        permutations = permutations.iter().flat_map(longer).collect();
    }
    let place = |order: &[usize], passage| order.iter().position(|other| *other == passage);
    let agree = |order: &[usize], votes: &[(usize, usize)]| {
        votes.iter().filter(|(winner, loser)| place(order, *winner) < place(order, *loser)).count()
    };
    assert!(near.len() <= 14 && sure.len() + near.len() == 50, "too little is sure: {near:?}");
    let central: std::collections::BTreeSet<&Vec<usize>> = (0..1_usize << near.len())
        .flat_map(|turned| {
            let turn = |(bit, &(one, other)): (usize, &(usize, usize))| {
                if turned >> bit & 1 == 1 { (other, one) } else { (one, other) }
            };
            let votes = [&sure[..], &near.iter().enumerate().map(turn).collect::<Vec<_>>()].concat();
            let counts: Vec<usize> = permutations.iter().map(|order| agree(order, &votes)).collect();
            let most = counts.iter().copied().max();
            permutations.iter().zip(counts).filter(move |(_, count)| Some(*count) == most).map(|(order, _)| order)
        })
        .collect();
    println!("{order:?}; {} votes are near, {} of 120 rankings may be central", near.len(), central.len());
    assert!(central.contains(&order) && central.len() < 30, "{order:?} of {central:?}");
}

/// The program draws with other random numbers, so means over seeds are compared, within four standard errors of their
/// difference.
#[tokio::test]
async fn semantic_utility_agrees_with_an_independent_program() {
    const SEEDS: usize = 4;
    let engine = common::engine_of_16_bits().await;
    let engine = common::with_judge(&engine, common::real_judge(0));
    let (golden, expected) = (golden(), read("semantic_utility.json"));
    let count = usize::try_from(expected["passages"].as_u64().unwrap()).unwrap();
    let mut sums = vec![0.0; count];
    for seed in 0..SEEDS {
        let request = RerankRequest {
            query: golden["query"].as_str().unwrap().into(),
            passages: passages(&golden)[..count].to_vec(),
            method: methods::find("semantic-utility"),
            moi: MoiOptions { seed: seed as u64, ..MoiOptions::default() },
            ..RerankRequest::default()
        };
        for placed in engine.reranker.rerank(&common::call(), request, None).await.unwrap().passages {
            sums[placed.index] += placed.utility;
        }
    }
    let (means, deviations) = (numbers(&expected["mean"]), numbers(&expected["deviation"]));
    let repeats = expected["repeats"].as_f64().unwrap();
    assert!(means.iter().any(|mean| mean.abs() > 0.2), "utilities of 0 would agree: {means:?}");
    for ((sum, mean), deviation) in sums.iter().zip(&means).zip(&deviations) {
        let error = deviation * (1.0 / SEEDS as f64 + 1.0 / repeats).sqrt();
        let ours = sum / SEEDS as f64;
        println!("{ours:.3}, expected {mean:.3}, {:.1} errors of {error:.3}", (ours - mean).abs() / error);
        assert!((ours - mean).abs() < 4.0 * error, "{ours} {mean} {error}");
    }
}
