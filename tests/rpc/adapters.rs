//! LoRA adapters over a real channel, on the tiny random generator of golden/adapters and on the default one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{common, gguf};
use common::passage_models::{info, rerank, utilities};
use common::scripted::Observed;
use common::{Running, wire};
use moi::profile::{Profiles, Subject};
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use rerankd::app;
use rerankd::app::profile_file::Origin;
use rerankd::config::Config;

/// Largest difference in the log-likelihood of about 20 tokens between the adapter and the merged weights: cache cells
/// hold 16 bits, and the order of summation differs.
const TOLERANCE: f64 = 0.1;

pub fn golden(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adapters").join(name).display().to_string()
}

/// A folder for the models' store, and servers that use it.
pub struct Bench(pub tempfile::TempDir);

impl Bench {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn config(&self, settings: &[(&str, &str)]) -> Config {
        let store = self.0.path().join("store").display().to_string();
        let own = [("models.store", &*store), ("entailment.model", "off"), ("generator.threads", "1")];
        let flags = own.iter().chain(settings).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Config::load(None, &flags.collect::<Vec<_>>()).unwrap()
    }

    /// Serves one of the golden files.
    async fn serve(&self, model: &str, settings: &[(&str, &str)]) -> Running {
        let model = golden(model);
        let config = self.config(&[&[("generator.model", &*model)], settings].concat());
        common::serve(app::engine(&config).await.unwrap(), Arc::new(Observed::default()), 8).await
    }

    async fn adapted(&self, scale: &str, settings: &[(&str, &str)]) -> Running {
        let adapter = golden("adapter.gguf");
        let own = [("generator.adapter", &*adapter), ("generator.adapter_scale", scale)];
        self.serve("base.gguf", &[&own, settings].concat()).await
    }

    /// The error of a generator with this adapter.
    async fn refusal(&self, name: &str, content: &[u8], settings: &[(&str, &str)]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        let (model, adapter) = (golden("base.gguf"), path.display().to_string());
        let own = [("generator.model", &*model), ("generator.adapter", &*adapter)];
        let config = self.config(&[&own, settings].concat());
        format!("{:#}", app::engine(&config).await.unwrap_err())
    }
}

const COLD: (&str, &str) = ("passage_cache.memory_bytes", "off");

fn asked(method: v1::Method) -> v1::RerankRequest {
    let passages = ["the looms ran on the river", "rye bread needs a long rest", "the weir stood above the mill"];
    v1::RerankRequest { method: method.into(), ..wire("which river drove the looms", &passages) }
}

async fn scores(running: &Running, method: v1::Method) -> Vec<f64> {
    utilities(&rerank(running, asked(method)).await.unwrap())
}

fn apart(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}

#[tokio::test]
async fn an_adapter_gives_the_scores_of_its_merged_weights_and_at_scale_0_those_of_the_base() {
    let bench = Bench::new();
    let base = bench.serve("base.gguf", &[COLD]).await;
    let merged = bench.serve("merged.gguf", &[COLD]).await;
    let (none, half, whole) =
        (bench.adapted("0", &[COLD]).await, bench.adapted("0.5", &[COLD]).await, bench.adapted("1", &[COLD]).await);
    for method in [v1::Method::QueryGeneration, v1::Method::Moi, v1::Method::ListwiseBayes] {
        let of_base = scores(&base, method).await;
        let bits = |scores: &[f64]| scores.iter().map(|score| score.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&scores(&none, method).await), bits(&of_base), "{method:?}");
        let (found, expected) = (scores(&whole, method).await, scores(&merged, method).await);
        println!(
            "{method:?}: {} nats from the merged file, {} from the base",
            apart(&found, &expected),
            apart(&found, &of_base)
        );
        assert!(apart(&found, &expected) < TOLERANCE, "{method:?}: {found:?}, {expected:?} expected");
        assert!(apart(&found, &of_base) > 10.0 * TOLERANCE, "{method:?}: the adapter changes nothing");
        let between = scores(&half, method).await;
        assert!(apart(&between, &of_base) > TOLERANCE && apart(&between, &found) > TOLERANCE, "{method:?}");
    }
    for server in [base, merged, none, half, whole] {
        server.stop().await;
    }
}

#[tokio::test]
async fn an_adapter_is_listed_and_named_by_answers() {
    let bench = Bench::new();
    let hash = hash_of(&golden("adapter.gguf"), &bench);
    let running = bench.adapted("0.5", &[]).await;
    let model = info(&running).await.generator.unwrap();
    let expected = v1::AdapterInfo { name: "adapter.gguf".into(), sha256: hash, scale: 0.5 };
    assert_eq!((model.name.as_str(), model.adapter.as_ref()), ("base.gguf", Some(&expected)));
    let answer = rerank(&running, asked(v1::Method::QueryGeneration)).await.unwrap();
    assert_eq!((answer.model.as_str(), answer.adapter.as_ref()), ("base.gguf", Some(&expected)));
    assert_eq!(answer.model_sha256, hash_of(&golden("base.gguf"), &bench), "the model's hash is the base file's");
    running.stop().await;
    let base = bench.serve("base.gguf", &[]).await;
    assert_eq!(info(&base).await.generator.unwrap().adapter, None);
    assert_eq!(rerank(&base, asked(v1::Method::QueryGeneration)).await.unwrap().adapter, None);
    base.stop().await;
}

fn hash_of(path: &str, bench: &Bench) -> String {
    bench.config(&[]).store.identify(&PathBuf::from(path)).unwrap()
}

/// Cached states on disk outlive a server, so base and adapter share a folder.
#[tokio::test]
async fn base_and_adapter_do_not_share_cached_states() {
    let bench = Bench::new();
    let cold = bench.adapted("1", &[COLD]).await;
    let (expected, method) = (scores(&cold, v1::Method::QueryGeneration).await, v1::Method::QueryGeneration);
    let cached = |answer: &v1::RerankResponse| answer.usage.unwrap().cached_tokens;
    for (folder, turns) in [("a", ["base", "adapter", "half"]), ("b", ["adapter", "base", "half"])] {
        let disk = bench.0.path().join(folder).display().to_string();
        let settings = [("passage_cache.disk", &*disk)];
        for (turn, who) in turns.into_iter().enumerate() {
            for again in [false, true] {
                let running = match who {
                    "base" => bench.serve("base.gguf", &settings).await,
                    "half" => bench.adapted("0.5", &settings).await,
                    _ => bench.adapted("1", &settings).await,
                };
                let answer = rerank(&running, asked(method)).await.unwrap();
                running.stop().await;
                assert_eq!(cached(&answer) > 0, again, "{folder} {turn} {who}: own states are used, others' are not");
                if who == "adapter" {
                    assert!(apart(&utilities(&answer), &expected) < TOLERANCE);
                }
            }
        }
    }
    cold.stop().await;
}

#[tokio::test]
async fn profiles_and_calibrations_belong_to_one_adapter_and_scale() {
    let bench = Bench::new();
    let store = bench.config(&[]).store;
    let (base, adapter) = (hash_of(&golden("base.gguf"), &bench), hash_of(&golden("adapter.gguf"), &bench));
    let name = |scale: f32| {
        let info = prefix_scheduler::model::AdapterInfo { name: String::new(), sha256: adapter.clone(), scale };
        prefix_scheduler::model::weights(&base, Some(&info))
    };
    let owners = [(base.clone(), 2), (name(1.0), 3), (name(0.5), 4)];
    for (owner, passages) in &owners {
        let mut profiles = Profiles::default();
        profiles.observe(Subject::Answer, &vec![0.5; *passages]);
        app::profile_file(&store, owner, Origin::Calibrated).save(&profiles).unwrap();
    }
    let calibration = engine::fusion::calibration::Calibration {
        embedding: None,
        model: None,
        method: "cascade".into(),
        mix: None,
        score: engine::fusion::platt::Platt { intercept: -2.0, slope: 3.0 },
        lists: 40,
        passages: 800,
        outranks_per_nat: None,
        calibration_error: None,
    };
    app::calibration_file(&store, &name(0.5)).save(&[calibration]).unwrap();
    for (scale, passages) in [(None, 2), (Some("1"), 3), (Some("0.5"), 4), (Some("0.25"), 0)] {
        let running = match scale {
            None => bench.serve("base.gguf", &[]).await,
            Some(scale) => bench.adapted(scale, &[]).await,
        };
        let mut client = ModelServiceClient::new(running.channel().await);
        let told = client.get_position_bias(v1::GetPositionBiasRequest::default()).await.unwrap().into_inner();
        let lengths: Vec<u32> = told.profiles.iter().map(|profile| profile.passages).collect();
        let expected: Vec<u32> = (passages > 0).then_some(passages).into_iter().collect();
        assert_eq!(lengths, expected, "{scale:?}");
        assert_eq!(told.adapter.map(|adapter| adapter.scale.to_string()), scale.map(str::to_owned));
        assert_eq!(told.model_sha256, base);
        assert_eq!(info(&running).await.calibrations.len(), usize::from(scale == Some("0.5")));
        running.stop().await;
    }
}

#[tokio::test]
async fn a_wrong_adapter_is_refused_with_its_name_and_the_reason() {
    let bench = Bench::new();
    let good = std::fs::read(golden("adapter.gguf")).unwrap();
    let replaced = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let mut bytes = good.clone();
        let mut found = 0;
        for at in 0..bytes.len() - from.len() {
            if bytes[at..].starts_with(from.as_bytes()) {
                bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
                found += 1;
            }
        }
        assert!(found > 0, "{from}");
        bytes
    };
    let base = std::fs::read(golden("base.gguf")).unwrap();
    for (name, content, reason) in [
        (
            "architecture.gguf",
            replaced("llama", "qwen2"),
            "general.architecture is \"qwen2\", the model's is \"llama\"",
        ),
        ("cut.gguf", good[..good.len() - 100].to_vec(), "extends beyond the end of the file"),
        ("header.gguf", good[..300].to_vec(), "the file ends inside its header"),
        ("empty.gguf", Vec::new(), "not a GGUF file"),
        ("noise.gguf", vec![0x5a; 5_000], "not a GGUF file"),
        (
            "tensor.gguf",
            replaced("blk.1.attn_q", "blk.1.attn_x"),
            "tensor \"blk.1.attn_x.weight.lora_a\" would not be applied",
        ),
        ("layer.gguf", replaced("blk.1.", "blk.9."), "the model has no tensor \"blk.9."),
        ("shape.gguf", replaced("attn_q.weight", "attn_v.weight"), "occurs twice"),
        ("model.gguf", base, "it has no general.type"),
    ] {
        let problem = bench.refusal(name, &content, &[]).await;
        assert!(problem.contains(name) && problem.contains(reason), "{name}: {problem}");
    }
    let shape = gguf::factors("blk.0.attn_k.weight", 32, 32, 2, 0.1);
    let shape = bench.refusal("shape.gguf", &gguf::bytes(&gguf::adapter_values("llama", 4.0), &shape), &[]).await;
    assert!(shape.contains("shape.gguf") && shape.contains("lora_a [32, r] and lora_b [r, 16] expected"), "{shape}");
    let model = golden("base.gguf");
    let absent = bench.config(&[("generator.model", &model), ("generator.adapter", "/nowhere/adapter.gguf")]);
    let absent = format!("{:#}", app::start(&absent).unwrap_err());
    assert!(absent.contains("/nowhere/adapter.gguf"), "{absent}");
    let role = bench.config(&[("generator.model", &model), ("generator.adapter", "smollm2-135m-instruct")]);
    let role = format!("{:#}", app::start(&role).unwrap_err());
    assert!(role.contains("is for generator, not for adapter"), "{role}");
}

/// A catalogue adapter, with its hash checked, on the default generator.
#[tokio::test]
async fn the_default_generator_takes_an_adapter_of_a_catalogue() {
    let _alone = common::alone().await;
    let folder = tempfile::tempdir().unwrap();
    let factors = [
        gguf::factors("blk.3.attn_q.weight", 576, 576, 2, 0.2),
        gguf::factors("blk.11.ffn_down.weight", 1536, 576, 2, 0.2),
    ];
    let content = gguf::bytes(&gguf::adapter_values("llama", 4.0), &factors.concat());
    let file = folder.path().join("own.gguf");
    std::fs::write(&file, &content).unwrap();
    let store = common::real_config().store;
    let (hash, bytes) = (store.identify(&file).unwrap(), content.len());
    let catalogue = folder.path().join("catalogue.toml");
    let entry = format!(
        "[[model]]\nname = \"own\"\nrole = \"adapter\"\nfile = \"own.gguf\"\nbytes = {bytes}\nsha256 = \"{hash}\"\n\
         licence = \"none\"\nsources = []\n"
    );
    std::fs::write(&catalogue, entry).unwrap();
    // The store of this test has the default generator by a link, and the adapter.
    let located = store.locate("smollm2-135m-instruct", models::catalog::Role::Generator).unwrap();
    let root = folder.path().join("store");
    for (name, from) in [("smollm2-135m-instruct", &located.path), ("own", &file)] {
        std::fs::create_dir_all(root.join(name)).unwrap();
        std::os::unix::fs::symlink(from, root.join(name).join(from.file_name().unwrap())).unwrap();
    }
    let (root, catalogue) = (root.display().to_string(), catalogue.display().to_string());
    let serve = async |adapter: &str, scale: &str| {
        let flags = [
            ("models.store", &*root),
            ("models.catalog", &*catalogue),
            ("generator.adapter", adapter),
            ("generator.adapter_scale", scale),
            ("entailment.model", "off"),
            COLD,
        ];
        let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let engine = app::engine(&Config::load(None, &flags).unwrap()).await.unwrap();
        common::serve(engine, Arc::new(Observed::default()), 8).await
    };
    let mut found = Vec::new();
    for (adapter, scale) in [("off", "1"), ("own", "0"), ("own", "1")] {
        let running = serve(adapter, scale).await;
        let told = info(&running).await.generator.unwrap().adapter;
        assert_eq!(
            told.map(|adapter| (adapter.name, adapter.sha256)),
            (adapter != "off").then(|| ("own".into(), hash.clone()))
        );
        found.push(scores(&running, v1::Method::QueryGeneration).await);
        running.stop().await;
    }
    assert_eq!(found[0], found[1]);
    assert!(apart(&found[0], &found[2]) > 0.05, "{found:?}");
    std::fs::write(&file, [content, vec![0; 32]].concat()).unwrap();
    let flags = [("models.store", root), ("models.catalog", catalogue), ("generator.adapter", "own".into())];
    let flags: Vec<_> = flags.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let changed = app::engine(&Config::load(None, &flags).unwrap()).await.unwrap_err();
    assert!(format!("{changed:#}").contains("bytes, "), "{changed:#}");
}
