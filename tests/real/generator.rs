//! The default generator with its weights and tokenizer, through the path of a request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use common::scripted::Observed;
use common::{real_engine, serve, wire};
use engine::Engine;
use engine::methods;
use engine::types::{EngineError, MoiOptions, Passage, RerankRequest, Reranked, Scheme};
use numeric::sampling::Sampling;
use prefix_scheduler::plan::{Finish, Grow, NodeId, Plan, Segment, Stop, Token};
use protocol::v1;

/// Log-probabilities depend on the shape of the batch, because other kernels round differently and sum in another order. With
/// 16-bit weights the difference is hundredths of a nat per token. With block types the activations are also rounded to 8
/// bits, and the error grows from layer to layer: single tokens differ by half a nat, the mean hardly. Each bound is about
/// twice the largest difference observed: (one token, root mean square, mean), in nats.
const BOUNDS_16_BIT: [f64; 3] = [0.25, 0.05, 0.01];
const BOUNDS_OF_BLOCKS: [f64; 3] = [1.0, 0.2, 0.05];

const TEXTS: [&str; 4] = [
    "The looms of Harrowgate were driven by water from the River Senn, led over a weir above the town.",
    "Rye flour absorbs more water than wheat, and a long rest keeps the crust from tearing.",
    "In the opening, bring out knights before bishops and castle early.",
    "The station of Harrowgate closed in 1964 and houses a museum of signal lamps.",
];
const QUERY: &str = "Which river drove the looms of Harrowgate?";

fn request(texts: &[&str]) -> RerankRequest {
    let passage = |(index, text): (usize, &&str)| Passage {
        id: format!("p{index}"),
        text: (*text).to_owned(),
        ..Passage::default()
    };
    RerankRequest {
        query: QUERY.to_owned(),
        passages: texts.iter().enumerate().map(passage).collect(),
        method: methods::find("moi"),
        moi: MoiOptions { scheme: Some(Scheme::Random), seed: 7, ..MoiOptions::default() },
        ..RerankRequest::default()
    }
}

async fn rerank(engine: &Engine, request: RerankRequest) -> Reranked {
    engine.reranker.rerank(&common::call(), request, None).await.unwrap()
}

fn utilities(answer: &Reranked) -> Vec<f64> {
    let mut by_index = vec![0.0; answer.passages.len()];
    for passage in &answer.passages {
        by_index[passage.index] = passage.utility;
    }
    by_index
}

#[tokio::test]
async fn a_shared_prefix_scores_as_one_sequence_at_a_time() {
    let engine = real_engine().await;
    let tokens = |text: &str| common::generator(&engine).tokenizer().text(text);
    let segments = |order: &[usize]| {
        let mut segments = vec![Segment::context(tokens("Documents follow.\n\n"))];
        segments.extend(order.iter().map(|&p| Segment::scored(tokens(TEXTS[p]), 0)));
        segments.push(Segment::scored(tokens(QUERY), 0));
        segments
    };
    let orders: Vec<Vec<usize>> = vec![vec![0, 1, 2, 3], vec![0, 1, 3, 2], vec![0, 3], vec![2, 0], vec![1]];
    let mut together = Plan::new();
    let paths: Vec<Vec<NodeId>> = orders.iter().map(|order| together.add(&segments(order))).collect();
    let shared = common::generator(&engine).scheduler.run(Arc::new(together), &common::call(), None).await.unwrap();
    let mut differences = Vec::new();
    for (order, path) in orders.iter().zip(paths) {
        let mut alone = Plan::new();
        let own = alone.add(&segments(order));
        let scores =
            common::generator(&engine).scheduler.run(Arc::new(alone), &common::call(), None).await.unwrap().scores;
        for (ours, theirs) in path.iter().zip(own) {
            for (left, right) in shared.scores[ours.0].iter().zip(&scores[theirs.0]) {
                differences.push(left - right);
            }
        }
    }
    close(&engine, &differences);
}

fn bounds(engine: &Engine) -> [f64; 3] {
    match &*common::generator(engine).info.encoding {
        "F16" | "BF16" => BOUNDS_16_BIT,
        _ => BOUNDS_OF_BLOCKS,
    }
}

fn close(engine: &Engine, differences: &[f64]) {
    let count = differences.len() as f64;
    let largest = differences.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    let mean = differences.iter().sum::<f64>() / count;
    let rms = (differences.iter().map(|x| x * x).sum::<f64>() / count).sqrt();
    println!("{count} tokens: largest difference {largest:.3}, root mean square {rms:.3}, mean {mean:.4} nats");
    let [token, square, centre] = bounds(engine);
    assert!(largest < token && rms < square && mean.abs() < centre);
}

/// The reference values were computed with numpy from the same file by tests/golden/generator/reference.py.
#[tokio::test]
async fn log_probabilities_agree_with_an_independent_program() {
    let engine = real_engine().await;
    let path = format!("{}/tests/golden/generator/scores.json", env!("CARGO_MANIFEST_DIR"));
    let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let tokens: Vec<Token> = serde_json::from_value(golden["tokens"].clone()).unwrap();
    let expected: Vec<f64> = serde_json::from_value(golden["log_probabilities"].clone()).unwrap();
    assert_eq!(common::generator(&engine).tokenizer().text(&format!("{} {QUERY}", TEXTS.join(" "))), tokens);
    let mut plan = Plan::new();
    let node = plan.add(&[Segment::scored(tokens, 1)])[0];
    let scores = common::generator(&engine).scheduler.run(Arc::new(plan), &common::call(), None).await.unwrap().scores;
    let differences: Vec<f64> = scores[node.0].iter().zip(&expected).map(|(ours, theirs)| ours - theirs).collect();
    assert_eq!(differences.len(), expected.len());
    close(&engine, &differences);
}

#[tokio::test]
async fn control_text_in_a_passage_stays_text() {
    let engine = real_engine().await;
    let tokens: Vec<Token> = common::generator(&engine).tokenizer().text("<|im_end|>");
    assert!(tokens.len() > 1, "a passage must not be able to close the message");
    assert_eq!(common::generator(&engine).tokenizer().template("<|im_end|>", false).len(), 1);
    assert_eq!(common::generator(&engine).tokenizer().detokenize(&tokens), "<|im_end|>");
    assert!(common::generator(&engine).info.chat);
}

/// The default generator's template has a system message. llama.cpp's template in its place does not.
#[tokio::test]
async fn the_template_of_the_file_is_evaluated_on_request() {
    let prompts = |config: rerankd::config::Config| async move {
        let engine = rerankd::app::engine(&config).await.unwrap();
        let served = common::generator(&engine);
        assert!(served.info.chat);
        served.tokenizer().detokenize(&served.language.prefix("Read.").tokens)
    };
    assert_eq!(prompts(common::real_config()).await, "<|im_start|>user\nRead.");
    let config =
        rerankd::config::Config::load(None, &[("generator.chat_template".to_owned(), "jinja".to_owned())]).unwrap();
    let evaluated = prompts(config).await;
    assert!(evaluated.starts_with("<|im_start|>system\nYou are a helpful AI assistant named SmolLM"), "{evaluated}");
    assert!(evaluated.ends_with("<|im_end|>\n<|im_start|>user\nRead."), "{evaluated}");
}

#[tokio::test]
async fn the_same_request_twice_gives_the_same_bytes() {
    let engine = alone().await;
    let first = rerank(&engine, request(&TEXTS)).await;
    let second = rerank(&engine, request(&TEXTS)).await;
    let bits = |answer: &Reranked| utilities(answer).iter().map(|u| u.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&first), bits(&second));
}

/// A generator for one test: requests of other tests in the same batch would change the rounding.
async fn alone() -> Engine {
    rerankd::app::engine(&common::real_config()).await.unwrap()
}

#[tokio::test]
async fn a_design_by_id_does_not_depend_on_the_given_order() {
    let engine = alone().await;
    let plain = request(&TEXTS);
    let mut turned = plain.clone();
    turned.passages.reverse();
    let (first, mut second) = (rerank(&engine, plain).await, rerank(&engine, turned).await);
    for passage in &mut second.passages {
        passage.index = TEXTS.len() - 1 - passage.index;
    }
    nearly_equal(&first, &second);
}

/// Utilities agree within a tenth of their spread. The difference is rounding, which the fit of whole orders amplifies.
fn nearly_equal(first: &Reranked, second: &Reranked) {
    let all = utilities(first);
    let spread =
        all.iter().fold(f64::MIN, |most, one| most.max(*one)) - all.iter().fold(f64::MAX, |least, one| least.min(*one));
    for left in &first.passages {
        let right = second.passages.iter().find(|passage| passage.index == left.index).unwrap();
        let gap = (left.utility - right.utility).abs();
        println!("passage {}: utility {:.3}, gap {gap:.3}, spread {spread:.3}", left.index, left.utility);
        assert!(gap < 0.1 * spread, "{left:?} {right:?}");
    }
}

#[tokio::test]
async fn one_and_two_passages_are_answers() {
    let engine = real_engine().await;
    for count in [1, 2] {
        for scheme in [None, Some(Scheme::Random), Some(Scheme::Cyclic), Some(Scheme::Adaptive), Some(Scheme::Trie)] {
            let mut request = request(&TEXTS[..count]);
            request.moi.scheme = scheme;
            let answer = rerank(&engine, request).await;
            assert_eq!(answer.passages.len(), count);
            assert!(utilities(&answer).iter().all(|u| u.is_finite()));
        }
    }
    let mut pair = request(&TEXTS[..2]);
    pair.method = methods::find("query-generation");
    assert_eq!(rerank(&engine, pair).await.passages[0].index, 0);
}

#[tokio::test]
async fn twins_have_the_same_utility() {
    let engine = real_engine().await;
    let answer = rerank(&engine, request(&[TEXTS[0], TEXTS[1], TEXTS[0], TEXTS[2]])).await;
    let of = |index: usize| answer.passages.iter().find(|passage| passage.index == index).unwrap();
    let (left, right) = (of(0), of(2));
    assert!((left.utility - right.utility).abs() < f64::EPSILON, "{left:?} {right:?}");
}

#[tokio::test]
async fn a_passage_longer_than_the_context_is_cut_or_refused() {
    let engine = real_engine().await;
    let long = "the wheel turned and ".repeat(4_000);
    let mut request = request(&[TEXTS[0], &long]);
    request.truncate = Some(false);
    match engine.reranker.rerank(&common::call(), request.clone(), None).await {
        Err(EngineError::TooLong { field, needed, available }) => {
            assert_eq!(field, "passages[1].text");
            assert!(needed > 12_000 && available < 8_192, "{needed} {available}");
        }
        other => panic!("{other:?}"),
    }
    request.truncate = Some(true);
    request.passage_tokens = Some(60);
    let answer = rerank(&engine, request).await;
    assert!(answer.passages.iter().any(|passage| passage.index == 1 && passage.tokens_cut > 12_000));
}

#[tokio::test]
async fn an_abandoned_request_stops_within_a_step() {
    let engine = alone().await;
    let long: Vec<String> = (0..6).map(|p| format!("{p} {}", "the wheel turned and ".repeat(60))).collect();
    let texts: Vec<&str> = long.iter().map(String::as_str).collect();
    let call = common::call();
    let run = engine.reranker.rerank(&call, request(&texts), None);
    assert!(tokio::time::timeout(Duration::from_millis(1_500), run).await.is_err());
    let left = Instant::now();
    let generator = common::generator(&engine);
    let stats = generator.scheduler.stats();
    while stats.abandoned.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        assert!(left.elapsed() < Duration::from_mins(1), "the worker did not stop");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("the worker was free {} ms after its caller left", left.elapsed().as_millis());
    assert_eq!(stats.cells.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_client_reranks_over_a_real_channel() {
    let server = serve(real_engine().await, Arc::new(Observed::default()), 64).await;
    let mut client = server.client().await;
    let moi = v1::MoiOptions { orders: 6, ..v1::MoiOptions::default() };
    let answer = client.rerank(v1::RerankRequest { moi: Some(moi), ..wire(QUERY, &TEXTS) }).await.unwrap().into_inner();
    assert_eq!(answer.results.len(), 4);
    assert_eq!(answer.model, "smollm2-135m-instruct");
    let diagnostics = answer.diagnostics.unwrap();
    assert!(diagnostics.orientation() != v1::Orientation::Unspecified);
    server.stop().await;
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let good = std::fs::read(
        common::real_config().store.locate("smollm2-135m-instruct", models::catalog::Role::Generator).unwrap().path,
    )
    .unwrap();
    let (empty, noise, cut) = (Vec::new(), vec![0x5a; 10_000], good[..good.len() / 2].to_vec());
    for (name, bytes) in [("empty.gguf", empty), ("noise.gguf", noise), ("cut.gguf", cut)] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let flags = [("generator.model".to_owned(), path.display().to_string())];
        let config = rerankd::config::Config::load(None, &flags).unwrap();
        let error = format!("{:#}", rerankd::app::engine(&config).await.unwrap_err());
        assert!(error.contains(name), "{error}");
    }
}

#[tokio::test]
async fn control_tokens_end_an_answer_and_words_do_not() {
    let engine = real_engine().await;
    let generator = common::generator(&engine);
    let tokenizer = generator.tokenizer();
    for control in ["<|im_start|>", "<|im_end|>"] {
        let tokens = tokenizer.template(control, false);
        assert!(tokens.len() == 1 && tokenizer.ends_turn(tokens[0]), "{control}");
    }
    // In a caller's text these characters are text.
    assert!(tokenizer.text("<|im_end|> Paris").iter().all(|&token| !tokenizer.ends_turn(token)));
}

struct Never;

impl Stop for Never {
    fn ended(&self, _tokens: &[Token]) -> Option<Finish> {
        None
    }
}

/// A context holds min(256, batch) sequences. With a batch of 64, the samples of three requests want more.
#[tokio::test]
async fn a_small_batch_bounds_the_sequences_and_changes_no_score() {
    let flags = [("generator.batch".to_owned(), "64".to_owned())];
    let small = rerankd::app::engine(&rerankd::config::Config::load(None, &flags).unwrap()).await.unwrap();
    let small = common::generator(&small);
    let shared: Vec<Token> = small.tokenizer().text(TEXTS[0]);
    let mut scored = Plan::new();
    let leaves: Vec<NodeId> = (100..250)
        .map(|leaf| scored.add(&[Segment::context(shared.clone()), Segment::scored(vec![leaf], 0)])[1])
        .collect();
    let scored = Arc::new(scored);
    let sampled = |seed: u64| {
        let mut plan = Plan::new();
        let prompt = plan.add(&[Segment::context(small.tokenizer().text(QUERY))])[0];
        let grow = |seed| Grow { sampling: Sampling::default(), most: 6, seed, stop: Arc::new(Never), allowed: None };
        let samples: Vec<NodeId> = (0..80).map(|sample| plan.sample(prompt, grow(100 * seed + sample))).collect();
        (Arc::new(plan), samples)
    };
    let requests = [sampled(1), sampled(2), sampled(3)];
    let call = common::call();
    let run = |plan: &Arc<Plan>| small.scheduler.run(Arc::clone(plan), &call, None);
    let (scores, first, second, third) =
        tokio::join!(run(&scored), run(&requests[0].0), run(&requests[1].0), run(&requests[2].0));
    let scores = scores.unwrap().scores;
    for ((_, samples), outcome) in requests.iter().zip([first, second, third]) {
        let outcome = outcome.unwrap();
        for node in samples {
            let sample = &outcome.samples[node];
            assert_eq!(sample.tokens.len(), 6);
            assert!(sample.log_probabilities.iter().all(|x| x.is_finite() && *x <= 0.0));
        }
    }
    let reference = real_engine().await;
    let expected = common::generator(&reference).scheduler.run(scored, &call, None).await.unwrap().scores;
    // All leaves share one prefix and its rounding, so only single differences are bounded.
    let [token, ..] = bounds(&reference);
    assert!(leaves.iter().all(|leaf| (scores[leaf.0][0] - expected[leaf.0][0]).abs() < token));
}

/// Uses a new store, so this machine's choice does not change.
#[cfg(unix)]
#[tokio::test]
async fn a_server_never_measures_and_runs_what_pull_chose() {
    let folder = tempfile::tempdir().unwrap();
    let own = common::real_config();
    let model = own.generator.model.clone();
    std::os::unix::fs::symlink(own.store.root().join(&model), folder.path().join(&model)).unwrap();
    let flags = [("models.store".to_owned(), folder.path().display().to_string())];
    let config = rerankd::config::Config::load(None, &flags).unwrap();
    let engine = rerankd::app::engine(&config).await.unwrap();
    assert_eq!(common::generator(&engine).info.encoding, "as shipped");
    drop(engine);
    let encodings = folder.path().join(".encodings");
    assert!(!encodings.exists());

    let steps = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&steps);
    let report = move |step: &str| seen.lock().unwrap().push(step.to_owned());
    let choice = rerankd::app::measure_tensor_types(&config, &config.generator, report.clone()).await.unwrap().unwrap();
    let measured: Vec<&str> = choice.measured.iter().map(|one| one.encoding.as_str()).collect();
    assert_eq!(measured, ["as shipped", "BF16", "F16", "Q8_0"]);
    println!("{:?}", choice.measured);
    let written: Vec<_> = std::fs::read_dir(&encodings).unwrap().map(|entry| entry.unwrap().path()).collect();
    if choice.encoding == "as shipped" {
        assert_eq!(written.len(), 1);
    } else {
        assert!(written.len() == 2 && written.contains(&choice.path));
        let planned = format!("re-encoding to {}, at most", choice.encoding);
        assert!(steps.lock().unwrap().iter().any(|step| step.starts_with(&planned)), "{planned}: {steps:?}");
    }
    let steps_of_first = steps.lock().unwrap().len();
    let again = rerankd::app::measure_tensor_types(&config, &config.generator, report).await.unwrap().unwrap();
    assert_eq!((again.encoding, steps.lock().unwrap().len()), (choice.encoding.clone(), steps_of_first));
    let engine = rerankd::app::engine(&config).await.unwrap();
    assert_eq!(
        (&common::generator(&engine).info.encoding, &common::generator(&engine).info.running_sha256),
        (&choice.encoding, &choice.sha256)
    );
}
