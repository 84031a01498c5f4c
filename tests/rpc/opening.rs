//! A caller's instruction and examples over a real channel: support by methods, effects, cost, errors.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common;
use common::scripted::Observed;
use common::{Running, Scripted, fields, wire};
use engine::fusion::calibration::Calibration;
use engine::fusion::platt::Platt;
use engine::position_bias::PositionBias;
use moi::profile::{Origin, Profiles, Subject};
use prefix_scheduler::plan::{Plan, Segment, Token};
use protocol::v1;
use protocol::v1::Method;
use tonic::Code;

/// Methods that accept a prompt prefix from the caller.
const TAKING: [Method; 5] =
    [Method::Cascade, Method::Moi, Method::QueryGeneration, Method::BayesSaliency, Method::ListwiseBayes];

const TEXTS: [&str; 4] = ["the looms of the town", "rye flour and water", "a station of signal lamps", "wwww zzzz"];
const OTHER: [&str; 3] = ["a weir above the mill", "crust and crumb", "a lamp of brass"];
const INSTRUCTION: &str = "Write the claim that the documents support or refute.";

fn example(passage: &str, query: &str) -> v1::Example {
    v1::Example { passage: passage.into(), query: query.into(), passage_title: String::new() }
}

fn plain(method: Method, texts: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { method: method.into(), ..wire("which river?", texts) }
}

fn opened(method: Method, texts: &[&str]) -> v1::RerankRequest {
    let examples = vec![example("the mill turns", "what turns?"), example("rain falls", "what falls?")];
    v1::RerankRequest { instruction: INSTRUCTION.into(), examples, ..plain(method, texts) }
}

/// Tokens of the prompt prefix on the scripted generator: one, and one per byte.
fn opening_tokens() -> u64 {
    let examples =
        "Document: the mill turns\n\nQuestion: what turns?\n\nDocument: rain falls\n\nQuestion: what falls?\n\n";
    (1 + INSTRUCTION.len() + 2 + examples.len()) as u64
}

fn scripted(memory_bytes: u64) -> Scripted {
    Scripted { warm: prefix_scheduler::warm::Options { memory_bytes, disk: None }, ..Scripted::default() }
}

async fn ask(server: &Running, request: v1::RerankRequest) -> v1::RerankResponse {
    server.client().await.rerank(request).await.unwrap().into_inner()
}

fn utilities(answer: &v1::RerankResponse) -> Vec<f64> {
    let mut by_index = vec![0.0; answer.results.len()];
    for result in &answer.results {
        by_index[result.original_index as usize] = result.utility;
    }
    by_index
}

#[tokio::test]
async fn a_method_accepts_the_prefix_or_refuses_it() {
    let server = Scripted::default().serve().await;
    let all = (1..1_000).filter_map(|value| Method::try_from(value).ok());
    for method in all {
        if TAKING.contains(&method) {
            let (own, built_in) =
                (ask(&server, opened(method, &TEXTS)).await, ask(&server, plain(method, &TEXTS)).await);
            assert_ne!(utilities(&own), utilities(&built_in), "{method:?}");
            assert_eq!(own.warnings, built_in.warnings, "no profile or calibration is skipped: {method:?}");
            let instructed = v1::RerankRequest { examples: Vec::new(), ..opened(method, &TEXTS) };
            assert_ne!(utilities(&ask(&server, instructed).await), utilities(&own), "{method:?}");
            let blank = v1::RerankRequest { instruction: " \n".into(), ..plain(method, &TEXTS) };
            assert_eq!(ask(&server, blank).await.results, built_in.results, "{method:?}");
            continue;
        }
        let instructed = v1::RerankRequest { examples: Vec::new(), ..opened(method, &TEXTS) };
        for (request, field) in [(instructed, "instruction"), (opened(method, &TEXTS), "examples")] {
            let before = server.observed.steps.load(Ordering::SeqCst);
            let status = server.client().await.rerank(request).await.unwrap_err();
            assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{method:?}");
            let name = method.as_str_name().trim_start_matches("METHOD_").to_lowercase().replace('_', "-");
            assert!(status.message().contains(&format!("{name} does not take it")), "{status}");
            assert_eq!(before, server.observed.steps.load(Ordering::SeqCst));
        }
    }
    // The default method takes it, too.
    let unnamed = v1::RerankRequest { method: 0, ..opened(Method::Cascade, &TEXTS) };
    assert_eq!(ask(&server, unnamed).await.results, ask(&server, opened(Method::Cascade, &TEXTS)).await.results);
    server.stop().await;
}

#[tokio::test]
async fn the_prefix_is_evaluated_once_and_cached_separately() {
    let (kept, cold) = (scripted(1 << 20).serve().await, scripted(0).serve().await);
    let method = Method::QueryGeneration;
    assert_eq!(ask(&kept, plain(method, &TEXTS)).await.usage.unwrap().cached_tokens, 0);
    let first = ask(&kept, opened(method, &TEXTS)).await;
    assert_eq!(first.usage.unwrap().cached_tokens, 0, "passages after another prefix are cached separately");
    assert_eq!(first.results, ask(&cold, opened(method, &TEXTS)).await.results);
    let (second, fresh) = (ask(&kept, opened(method, &OTHER)).await, ask(&cold, opened(method, &OTHER)).await);
    assert_eq!(second.results, fresh.results);
    let (warm, whole) = (second.usage.unwrap(), fresh.usage.unwrap());
    // The prefix and, in the prompt without a passage, the cue except its last token.
    assert_eq!(warm.cached_tokens, opening_tokens() + "Question:".len() as u64 - 1);
    assert_eq!(warm.tokens + warm.cached_tokens, whole.tokens);
    let again = ask(&kept, opened(method, &TEXTS)).await;
    assert_eq!(again.results, first.results);
    assert_eq!(again.usage.unwrap().tokens, 5 * ("which river?".len() as u64 + 1), "only the query");
    kept.stop().await;
    cold.stop().await;
}

/// The last stage of the cascade is METHOD_MOI on the first three passages, with the same prefix.
#[tokio::test]
async fn both_stages_of_the_cascade_have_the_prefix() {
    let server = Scripted::default().serve().await;
    let texts = ["mill", "mill ", " mill", "weir", "lock"];
    let mut request = v1::RerankRequest { query: "mill".into(), ..opened(Method::Cascade, &texts) };
    request.fusion = Some(v1::Fusion { mode: v1::FusionMode::Off.into(), ..v1::Fusion::default() });
    let answer = ask(&server, request.clone()).await;
    let of = |answer: &v1::RerankResponse, id: &str| {
        answer.results.iter().find(|result| result.id == id).map(|result| result.utility)
    };
    let together: Vec<&str> = answer
        .results
        .iter()
        .filter(|result| result.stage() == v1::Stage::Together)
        .map(|result| result.id.as_str())
        .collect();
    assert_eq!(together.len(), 3);
    let passages = request.passages.iter().filter(|passage| together.contains(&passage.id.as_str())).cloned().collect();
    let moi = Some(v1::MoiOptions { design: v1::Design::Prefix.into(), depth: 3, ..v1::MoiOptions::default() });
    let alone = v1::RerankRequest { method: Method::Moi.into(), passages, moi, ..request };
    let alone = ask(&server, alone).await;
    for id in together {
        let (staged, fitted) = (of(&answer, id).unwrap(), of(&alone, id).unwrap());
        assert!((staged - fitted).abs() < 1e-6, "{id}: {staged} {fitted}");
    }
    server.stop().await;
}

#[tokio::test]
async fn bad_prefixes_are_refused_with_the_field() {
    let server = Scripted::default().serve().await;
    let with = |change: fn(&mut v1::RerankRequest)| {
        let mut request = opened(Method::QueryGeneration, &TEXTS);
        change(&mut request);
        request
    };
    let cases: [(v1::RerankRequest, &str, &str); 6] = [
        (with(|request| request.instruction = "ä".repeat(4_001)), "instruction", "4001 characters given, at most 4000"),
        (with(|request| request.examples = vec![example("p", "q"); 17]), "examples", "17 given, at most 16 allowed"),
        (with(|request| request.examples[1].passage = " ".into()), "examples[1].passage", "must not be empty"),
        (with(|request| request.examples[0].query.clear()), "examples[0].query", "must not be empty"),
        (with(|request| request.examples[0].query = "q".repeat(1_001)), "examples[0].query", "1001 bytes given"),
        (with(|request| request.examples[0].passage = "p".repeat(3_000)), "examples", "2048 available"),
    ];
    for (request, field, problem) in cases {
        let status = server.client().await.rerank(request).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec![field.to_owned()]), "{status}");
        assert!(status.message().contains(problem), "{status}");
    }
    let long = v1::RerankRequest { instruction: "i".repeat(3_000), ..plain(Method::Moi, &TEXTS) };
    let status = server.client().await.rerank(long).await.unwrap_err();
    assert_eq!(fields(&status), ["instruction"]);
    // The prefix counts against the budget.
    let built_in = ask(&server, plain(Method::QueryGeneration, &TEXTS)).await.usage.unwrap().tokens;
    let status = {
        let request = v1::RerankRequest { token_budget: built_in, ..opened(Method::QueryGeneration, &TEXTS) };
        server.client().await.rerank(request).await.unwrap_err()
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    server.stop().await;
}

/// A profile for four passages whose effect exceeds its error.
fn profiles(subject: Subject) -> Profiles {
    let mut profiles = Profiles::default();
    for index in 0..40 {
        let first = if index % 2 == 0 { 0.22 } else { 0.18 };
        assert!(profiles.observe(subject, &[first, 0.1, 0.2, 0.7 - first]));
    }
    profiles
}

#[tokio::test]
async fn measurements_with_the_built_in_prompt_are_not_applied() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let bias = PositionBias::new(profiles(Subject::Question), Profiles::default(), Box::new(|_| Ok(())), Vec::new());
    let server = common::serve(common::with_position_bias(&engine, bias), observed, queue_length).await;
    let generator = server.engine.generator().unwrap();
    generator.calibrations.replace(vec![Calibration {
        embedding: None,
        model: None,
        method: "query-generation".into(),
        mix: None,
        score: Platt { intercept: -2.0, slope: 3.0 },
        lists: 40,
        passages: 800,
        outranks_per_nat: None,
        calibration_error: None,
    }]);
    let built_in = ask(&server, plain(Method::QueryGeneration, &TEXTS)).await;
    let ground = |answer: &v1::RerankResponse| answer.context_order.as_ref().unwrap().ground();
    assert!(built_in.score_calibrated && built_in.warnings.is_empty());
    assert_eq!(ground(&built_in), v1::ArrangementGround::QuestionProfile);
    let own = ask(&server, opened(Method::QueryGeneration, &TEXTS)).await;
    assert!(!own.score_calibrated);
    let arranged = own.context_order.as_ref().unwrap();
    let ranking: Vec<u32> = own.results.iter().map(|result| result.original_index).collect();
    assert_eq!((arranged.ground(), &arranged.original_indices), (v1::ArrangementGround::NoProfile, &ranking));
    assert!(
        own.warnings.len() == 2 && own.warnings.iter().all(|warning| warning.contains("built-in prompt")),
        "{own:?}"
    );
    // An order that the caller names needs no profile, so it is applied.
    let reverse = v1::ContextOrder::Reverse.into();
    let named =
        ask(&server, v1::RerankRequest { context_order: reverse, ..opened(Method::QueryGeneration, &TEXTS) }).await;
    assert_eq!((ground(&named), named.warnings.len()), (v1::ArrangementGround::Requested, 1));
    // Nothing is learnt from such a request either.
    generator.position_bias.set_learning(true);
    let learnt = || {
        let all = generator.position_bias.profiles();
        all.into_iter().find(|(origin, _)| *origin == Origin::Learnt).unwrap().1
    };
    let texts = ["zzzz yyyy", "the question is here", "wwww", "question question"];
    let request = |opening: bool| v1::RerankRequest {
        instruction: if opening { "zz".into() } else { String::new() },
        method: Method::Moi.into(),
        ..wire("question", &texts)
    };
    ask(&server, request(true)).await;
    assert!(learnt().is_empty());
    ask(&server, request(false)).await;
    assert!(!learnt().is_empty());
    server.stop().await;
}

/// The prompt of answers does not change, so an answer profile holds for every prefix.
#[tokio::test]
async fn a_profile_of_the_answer_is_applied() {
    let (engine, observed, queue_length) = Scripted::default().engine().await;
    let mut both = profiles(Subject::Answer);
    both.merge(&profiles(Subject::Question));
    let bias = PositionBias::new(both, Profiles::default(), Box::new(|_| Ok(())), Vec::new());
    let server = common::serve(common::with_position_bias(&engine, bias), observed, queue_length).await;
    let own = ask(&server, opened(Method::QueryGeneration, &TEXTS)).await;
    assert_eq!(own.context_order.unwrap().ground(), v1::ArrangementGround::AnswerProfile);
    assert!(own.warnings.is_empty(), "{:?}", own.warnings);
    server.stop().await;
}

/// The limit is an eighth of the 4,096 cells of the scripted generator.
#[tokio::test]
async fn a_prefix_that_is_not_cached_is_reported() {
    let server = scripted(1 << 20).serve().await;
    for (characters, kept) in [(500, true), (600, false)] {
        let instruction = "i".repeat(characters);
        let request = |texts: &[&str]| v1::RerankRequest {
            instruction: instruction.clone(),
            ..plain(Method::QueryGeneration, texts)
        };
        let (_, second) = (ask(&server, request(&TEXTS)).await, ask(&server, request(&OTHER)).await);
        let reused = second.usage.unwrap().cached_tokens >= characters as u64;
        assert_eq!((reused, second.warnings.is_empty()), (kept, kept), "{characters}: {second:?}");
        assert!(kept || second.warnings[0].contains("at most 512 tokens"), "{:?}", second.warnings);
    }
    server.stop().await;
    // Without a cache every request evaluates its prefix, of any size.
    let server = Scripted::default().serve().await;
    let request = v1::RerankRequest { instruction: "i".repeat(600), ..plain(Method::QueryGeneration, &TEXTS) };
    assert!(ask(&server, request).await.warnings.is_empty());
    server.stop().await;
}

/// Log P(query | prefix, passage) of the prompt as one sequence.
async fn directly(server: &Running, opening: &[Token], passage: &str, query: &str) -> f64 {
    let generator = server.engine.generator().unwrap();
    let language = &generator.language;
    let passage = if passage.is_empty() {
        Vec::new()
    } else {
        [language.text("Document:"), language.text(&format!(" {passage}")), language.text("\n\n")].concat()
    };
    let cue = language.text("Question:");
    let before = [opening, &passage, language.closing(), &cue].concat();
    let length = before.len();
    let mut plan = Plan::new();
    let node = plan.add(&[Segment::scored([before, language.query(query)].concat(), length)])[0];
    let scores = generator.scheduler.run(Arc::new(plan), &common::call(), None).await.unwrap().scores;
    scores[node.0].iter().sum()
}

/// Largest difference of a utility from the same prompts as single sequences, in nats: other batches round differently.
const TOLERANCE: f64 = 0.3;

#[tokio::test]
async fn the_generator_reads_the_callers_prefix() {
    let config = rerankd::config::Config::load(None, &common::settings_of_16_bits()).unwrap();
    let engine = rerankd::app::engine(&config).await.expect("the default generator; `make setup` fetches it");
    let server = common::serve(engine, Arc::new(Observed::default()), 8).await;
    let texts = [
        "The looms of Harrowgate were driven by water from the River Senn, led over a weir above the town.",
        "Rye flour absorbs more water than wheat, and a long rest keeps the crust from tearing.",
    ];
    let query = "Which river drove the looms of Harrowgate?";
    let examples = vec![example("The ferry at Oke runs until dusk.", "When does the ferry at Oke stop?")];
    let request = |query: &str| v1::RerankRequest {
        instruction: INSTRUCTION.into(),
        examples: examples.clone(),
        method: Method::QueryGeneration.into(),
        ..wire(query, &texts)
    };
    let first = ask(&server, request(query)).await;
    let generator = server.engine.generator().unwrap();
    let language = &generator.language;
    let opening = [
        &language.prefix(&format!("{INSTRUCTION}\n\n")).tokens[..],
        &language.text("Document:"),
        &language.text(" The ferry at Oke runs until dusk."),
        &language.text("\n\n"),
        &language.text("Question:"),
        &language.query("When does the ferry at Oke stop?"),
        &language.text("\n\n"),
    ]
    .concat();
    let none = directly(&server, &opening, "", query).await;
    for (text, utility) in texts.iter().zip(utilities(&first)) {
        let expected = directly(&server, &opening, text, query).await - none;
        println!("{utility:.3} nats, {expected:.3} as one sequence");
        assert!((utility - expected).abs() < TOLERANCE, "{utility} {expected}");
    }
    assert_eq!(first.results[0].original_index, 0);
    let built_in = ask(&server, plain_of(query, &texts)).await;
    let moved =
        utilities(&first).iter().zip(utilities(&built_in)).map(|(own, other)| (own - other).abs()).fold(0.0, f64::max);
    assert!(moved > TOLERANCE, "the instruction changes utilities: {moved}");
    // Another query on the same passages evaluates only the query. Other passages do not evaluate the prefix again.
    let second = ask(&server, request("When did the station close?")).await.usage.unwrap();
    assert!(second.cached_tokens >= opening.len() as u64 && second.tokens < second.cached_tokens, "{second:?}");
    let others = ["The station closed in 1964.", "Castle early."];
    let other = v1::RerankRequest { passages: wire("", &others).passages, ..request(query) };
    let third = ask(&server, other).await.usage.unwrap();
    assert!(third.cached_tokens >= opening.len() as u64, "{third:?} with a prefix of {} tokens", opening.len());
    server.stop().await;
}

fn plain_of(query: &str, texts: &[&str]) -> v1::RerankRequest {
    v1::RerankRequest { method: Method::QueryGeneration.into(), ..wire(query, texts) }
}
