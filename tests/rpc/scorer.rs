//! A scorer separate from the generator, over a real channel: the tiny random generators of golden/adapters, and the
//! default one.

use std::path::Path;
use std::sync::Arc;

use crate::adapters::{Bench, golden};
use crate::common;
use common::passage_models::{info, rerank, utilities};
use common::scripted::Observed;
use common::{Running, fields, wire};
use moi::profile::{Profiles, Subject};
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use rerankd::app;
use rerankd::app::profile_file::Origin;
use rerankd::config::Config;
use tonic::Code;

impl Bench {
    /// Serves this generator and this scorer, which may be empty.
    async fn serve_both(&self, generator: &str, scorer: &str, settings: &[(&str, &str)]) -> Running {
        let (generator, scorer) =
            (golden(generator), if scorer.is_empty() { "off".to_owned() } else { golden(scorer) });
        let own = [("generator.model", &*generator), ("scorer.model", &*scorer)];
        let engine = app::engine(&self.config(&[&own, settings].concat())).await.unwrap();
        common::serve(engine, Arc::new(Observed::default()), 8).await
    }
}

const COLD: (&str, &str) = ("passage_cache.memory_bytes", "off");

fn asked(method: v1::Method, scorer: &str) -> v1::RerankRequest {
    let passages = ["the looms ran on the river", "rye bread needs a long rest", "the weir stood above the mill"];
    let wanted = wire("which river drove the looms", &passages);
    v1::RerankRequest { method: method.into(), scorer: scorer.to_owned(), ..wanted }
}

async fn bits(running: &Running, method: v1::Method, scorer: &str) -> Vec<u64> {
    let answer = rerank(running, asked(method, scorer)).await.unwrap();
    utilities(&answer).iter().map(|utility| utility.to_bits()).collect()
}

/// Methods of every kind that score passages.
const SCORING: [v1::Method; 8] = [
    v1::Method::QueryGeneration,
    v1::Method::Cascade,
    v1::Method::Moi,
    v1::Method::BayesSaliency,
    v1::Method::LongLlmLingua,
    v1::Method::YesNo,
    v1::Method::Pairwise,
    v1::Method::ListwiseBayes,
];

/// Methods that ask for the generator's own answer.
const OWN_ANSWER: [v1::Method; 4] =
    [v1::Method::AnswerLikelihood, v1::Method::LeaveOneOut, v1::Method::ContextCite, v1::Method::SelfConsistency];

#[tokio::test]
async fn passages_are_scored_by_the_scorer_and_answers_come_from_the_generator() {
    let bench = Bench::new();
    let both = bench.serve_both("base.gguf", "merged.gguf", &[COLD]).await;
    let base = bench.serve_both("base.gguf", "", &[COLD]).await;
    let merged = bench.serve_both("merged.gguf", "", &[COLD]).await;
    for method in SCORING {
        let (of_base, of_merged) = (bits(&base, method, "").await, bits(&merged, method, "").await);
        assert_ne!(of_base, of_merged, "{method:?}");
        assert_eq!(bits(&both, method, "").await, of_merged, "{method:?}: the scorer is the default");
        assert_eq!(bits(&both, method, "scorer").await, of_merged, "{method:?}");
        assert_eq!(bits(&both, method, &golden("merged.gguf")).await, of_merged, "{method:?}: by its configured name");
        assert_eq!(bits(&both, method, "merged.gguf").await, of_merged, "{method:?}: by the name in answers");
        assert_eq!(bits(&both, method, "generator").await, of_base, "{method:?}");
    }
    for method in OWN_ANSWER {
        let of_base = bits(&base, method, "").await;
        assert_eq!(bits(&both, method, "").await, of_base, "{method:?}");
        assert_eq!(bits(&both, method, "generator").await, of_base, "{method:?}");
    }
    let model = async |scorer: &str| {
        let answer = rerank(&both, asked(v1::Method::QueryGeneration, scorer)).await.unwrap();
        (answer.model, answer.model_sha256)
    };
    // The scorer also reads the passages for compression, whatever the ranking method.
    let compressed = async |server: &Running, scorer: &str| {
        let (method, unit) = (v1::CompressionMethod::SelectiveContext.into(), v1::CompressionUnit::Token.into());
        let compression = v1::Compression { method, unit, ratio: Some(0.5), ..v1::Compression::default() };
        let wanted = asked(v1::Method::Retriever, scorer);
        let wanted = v1::RerankRequest { compression: Some(compression), ..wanted };
        rerank(server, wanted).await.unwrap().compression.unwrap()
    };
    assert_ne!(compressed(&base, "").await, compressed(&merged, "").await);
    assert_eq!(compressed(&both, "").await, compressed(&merged, "").await);
    assert_eq!(compressed(&both, "scorer").await, compressed(&merged, "").await);
    assert_eq!(compressed(&both, "generator").await, compressed(&base, "").await);
    let told = info(&both).await;
    let (generator, scorer) = (told.generator.unwrap(), told.scorer.unwrap());
    let hash = scorer.model.as_ref().unwrap().sha256.clone();
    assert_eq!([&*generator.compute, &*scorer.model.as_ref().unwrap().compute], ["cpu"; 2]);
    assert_eq!(model("").await, ("merged.gguf".to_owned(), hash));
    assert_eq!(model("generator").await, ("base.gguf".to_owned(), generator.sha256));
    let own = rerank(&both, asked(v1::Method::LeaveOneOut, "")).await.unwrap();
    assert_eq!(own.model, "base.gguf");
    assert!(scorer.worker.as_ref().unwrap().ready && scorer.worker.unwrap().tokens > 0);
    // With AMX, a tile of the context is padding.
    assert!((8_160..=8_192).contains(&scorer.context_tokens));
    assert_eq!((scorer.name, scorer.batch_tokens), (golden("merged.gguf"), 512));
    assert_eq!(info(&base).await.scorer, None);
    for server in [both, base, merged] {
        server.stop().await;
    }
}

#[tokio::test]
async fn samples_stay_on_the_generator() {
    use protocol::v1::belief_service_client::BeliefServiceClient;
    let bench = Bench::new();
    let both = bench.serve_both("base.gguf", "merged.gguf", &[COLD]).await;
    let base = bench.serve_both("base.gguf", "", &[COLD]).await;
    let mut answers = Vec::new();
    for server in [&both, &base] {
        let mut client = BeliefServiceClient::new(server.channel().await);
        let request = v1::SampleRequest {
            question: "which river".into(),
            sampling: Some(v1::SamplingOptions {
                samples: 3,
                max_tokens: 8,
                seed: 5,
                ..v1::SamplingOptions::default()
            }),
            ..v1::SampleRequest::default()
        };
        let mut events = client.sample(request).await.unwrap().into_inner();
        let (mut sampled, mut model) = (vec![v1::Answer::default(); 3], String::new());
        while let Some(event) = events.message().await.unwrap() {
            match event.event.unwrap() {
                v1::sample_response::Event::Sampled(sample) => {
                    sampled[sample.number as usize] = sample.answer.unwrap();
                }
                v1::sample_response::Event::Done(done) => model = done.model,
                v1::sample_response::Event::Progress(_) => {}
            }
        }
        answers.push((model, sampled));
    }
    assert_eq!(answers[0], answers[1]);
    both.stop().await;
    base.stop().await;
}

/// Uses the default entailment model. Both servers measure the input order, whatever the ranking.
#[tokio::test]
async fn the_inline_utility_is_the_generators() {
    let (generator, scorer) = (golden("base.gguf"), golden("merged.gguf"));
    let mut found = Vec::new();
    for scorer in [scorer.as_str(), "off"] {
        let flags = [("generator.model", generator.as_str()), ("scorer.model", scorer), COLD];
        let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let engine = app::engine(&Config::load(None, &flags).unwrap()).await.unwrap();
        let server = common::serve(engine, Arc::new(Observed::default()), 8).await;
        let inline = v1::InlineUtility {
            references: vec!["the river".into()],
            samples: 2,
            max_tokens: 6,
            ..v1::InlineUtility::default()
        };
        let ranked = rerank(&server, asked(v1::Method::QueryGeneration, "")).await.unwrap();
        let wanted = v1::RerankRequest { utility: Some(inline), ..asked(v1::Method::QueryGeneration, "") };
        let answer = rerank(&server, wanted).await.unwrap();
        assert_eq!(utilities(&answer), utilities(&ranked), "{scorer}");
        assert!(answer.usage.unwrap().tokens > ranked.usage.unwrap().tokens, "{scorer}");
        let ledgers = server.engine.models().generators().iter().map(|model| model.scheduler().ledger().total());
        assert_eq!(ledgers.sum::<usize>(), 0, "nothing stays admitted");
        found.push((answer.model, answer.utility.unwrap().given));
        server.stop().await;
    }
    assert_eq!((found[0].0.as_str(), found[1].0.as_str()), ("merged.gguf", "base.gguf"));
    assert_eq!(found[0].1, found[1].1);
}

#[tokio::test]
async fn unknown_scorers_are_refused_with_the_known_names() {
    let bench = Bench::new();
    let both = bench.serve_both("base.gguf", "merged.gguf", &[]).await;
    let refused = async |server: &Running, method: v1::Method, scorer: &str| {
        let status = rerank(server, asked(method, scorer)).await.unwrap_err();
        assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["scorer".to_owned()]), "{status}");
        status.message().to_owned()
    };
    for unknown in ["Generator", "nobody", " ", "base.gguf"] {
        let message = refused(&both, v1::Method::QueryGeneration, unknown).await;
        assert!(message.contains("must be generator, scorer or ") && message.contains("merged.gguf"), "{message}");
    }
    let long = refused(&both, v1::Method::QueryGeneration, &"x".repeat(100_000)).await;
    assert_eq!(long, "scorer: 100000 bytes given, at most 1024 allowed");
    for method in OWN_ANSWER {
        assert!(refused(&both, method, "scorer").await.contains("the generator's own answer"));
    }
    assert!(refused(&both, v1::Method::Retriever, "scorer").await.contains("asks no generator"));
    let mut client = ModelServiceClient::new(both.channel().await);
    let profiles = v1::GetPositionBiasRequest { scorer: "nobody".into(), ..v1::GetPositionBiasRequest::default() };
    let status = client.get_position_bias(profiles).await.unwrap_err();
    assert_eq!((status.code(), fields(&status)), (Code::InvalidArgument, vec!["scorer".to_owned()]));
    both.stop().await;
    let alone = bench.serve_both("base.gguf", "", &[]).await;
    assert!(rerank(&alone, asked(v1::Method::QueryGeneration, "generator")).await.is_ok());
    assert!(refused(&alone, v1::Method::QueryGeneration, "scorer").await.contains("no scorer is configured"));
    alone.stop().await;
}

/// Prefetching uses the scorer. The scorer has separate cached states, profiles and calibrations.
#[tokio::test]
async fn states_profiles_and_calibrations_are_the_scorers_own() {
    let bench = Bench::new();
    let store = bench.config(&[]).store;
    let hash = |name: &str| store.identify(Path::new(&golden(name))).unwrap();
    for (owner, passages) in [("base.gguf", 2), ("merged.gguf", 3)] {
        let mut profiles = Profiles::default();
        profiles.observe(Subject::Answer, &vec![0.5; passages]);
        app::profile_file(&store, &hash(owner), Origin::Calibrated).save(&profiles).unwrap();
    }
    let calibration = engine::fusion::calibration::Calibration {
        embedding: None,
        model: None,
        method: "query-generation".into(),
        mix: None,
        score: engine::fusion::platt::Platt { intercept: -2.0, slope: 3.0 },
        lists: 40,
        passages: 800,
        outranks_per_nat: None,
        calibration_error: None,
    };
    app::calibration_file(&store, &hash("merged.gguf")).save(&[calibration]).unwrap();
    let both = bench.serve_both("base.gguf", "merged.gguf", &[]).await;
    let mut client = ModelServiceClient::new(both.channel().await);
    for (scorer, owner, passages) in [("", "base.gguf", 2), ("generator", "base.gguf", 2), ("scorer", "merged.gguf", 3)]
    {
        let wanted = v1::GetPositionBiasRequest { scorer: scorer.into(), ..v1::GetPositionBiasRequest::default() };
        let told = client.get_position_bias(wanted).await.unwrap().into_inner();
        assert_eq!((told.model_sha256, told.profiles.len()), (hash(owner), 1));
        assert_eq!(told.profiles[0].passages, passages);
    }
    let told = info(&both).await;
    assert_eq!((told.calibrations.len(), told.scorer.unwrap().calibrations.len()), (0, 1));

    let passages = asked(v1::Method::QueryGeneration, "").passages;
    let wanted = v1::WarmPassagesRequest { passages };
    let mut progress = both.client().await.warm_passages(wanted).await.unwrap().into_inner();
    let mut last = v1::WarmPassagesResponse::default();
    while let Some(next) = progress.message().await.unwrap() {
        last = next;
    }
    assert_eq!((last.passages, last.kept, last.model.as_str()), (3, 3, "merged.gguf"));
    let cached = async |scorer: &str| {
        let answer = rerank(&both, asked(v1::Method::QueryGeneration, scorer)).await.unwrap();
        assert_eq!(answer.score_calibrated, scorer != "generator");
        answer.usage.unwrap().cached_tokens
    };
    assert!(cached("scorer").await > 0);
    assert_eq!(cached("generator").await, 0);
    assert!(cached("generator").await > 0, "the generator's cache");
    let told = info(&both).await;
    assert!(told.warm.unwrap().states > 0 && told.scorer.unwrap().warm.unwrap().states > 0);
    both.stop().await;
}

/// The default generator answers while a tiny one scores. Then one file is the generator and, with an adapter, the
/// scorer.
#[tokio::test]
async fn the_default_generator_answers_while_another_scores() {
    let scorer = golden("base.gguf");
    let flags = [("scorer.model", scorer.as_str()), ("entailment.model", "off"), COLD];
    let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let engine = app::engine(&Config::load(None, &flags).unwrap()).await.unwrap();
    let both = common::serve(engine, Arc::new(Observed::default()), 8).await;
    let plain = rerank(&both, asked(v1::Method::QueryGeneration, "")).await.unwrap();
    let named = rerank(&both, asked(v1::Method::QueryGeneration, "generator")).await.unwrap();
    let own = rerank(&both, asked(v1::Method::LeaveOneOut, "")).await.unwrap();
    let default = "smollm2-135m-instruct";
    assert_eq!((plain.model.as_str(), named.model.as_str(), own.model.as_str()), ("base.gguf", default, default));
    both.stop().await;

    let bench = Bench::new();
    let adapter = golden("adapter.gguf");
    let adapted = [("scorer.adapter", adapter.as_str()), ("scorer.adapter_scale", "1"), COLD];
    let same = bench.serve_both("base.gguf", "base.gguf", &adapted).await;
    let told = info(&same).await.scorer.unwrap();
    assert_eq!((told.name.as_str(), told.model.unwrap().adapter.unwrap().name.as_str()), ("scorer", "adapter.gguf"));
    let (scored, base) = (bits(&same, v1::Method::Moi, "").await, bits(&same, v1::Method::Moi, "generator").await);
    assert_ne!(scored, base);
    let page = String::from_utf8(server::observe::Metrics::new(same.engine.clone()).unwrap().page().unwrap()).unwrap();
    for series in ["rerankd_model_ready{model=\"scorer\",role=\"scorer\"} 1", "rerankd_batch_tokens{model=\"scorer\"}"]
    {
        assert!(page.contains(series), "{series}");
    }
    same.stop().await;
}

#[tokio::test]
async fn a_scorer_that_cannot_be_loaded_ends_the_start_with_its_name() {
    let bench = Bench::new();
    let damaged = bench.0.path().join("damaged.gguf");
    std::fs::write(&damaged, vec![0x5a; 5_000]).unwrap();
    let (generator, damaged) = (golden("base.gguf"), damaged.display().to_string());
    let config = bench.config(&[("generator.model", &generator), ("scorer.model", &damaged)]);
    let problem = format!("{:#}", app::engine(&config).await.unwrap_err());
    assert!(problem.contains("scorer.model: ") && problem.contains("damaged.gguf"), "{problem}");
    let absent = bench.config(&[("generator.model", &generator), ("scorer.model", "nobody")]);
    assert!(format!("{:#}", app::start(&absent).unwrap_err()).contains("nobody"));
    let adapter = bench.config(&[
        ("generator.model", &generator),
        ("scorer.model", &generator),
        ("scorer.adapter", &golden("merged.gguf")),
    ]);
    let problem = format!("{:#}", app::engine(&adapter).await.unwrap_err());
    assert!(problem.contains("the scorer cannot be loaded") && problem.contains("merged.gguf"), "{problem}");
}
