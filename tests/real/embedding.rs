//! The default embedding model with its weights.

use models::catalog::Role;
use models::onnx::{PassageNetwork, PassageSettings, with_passage_model};
use prefix_scheduler::model::reranker::{Encoded, Shortening};
use rerankd::config::Config;

const PASSAGES: [&str; 4] = [
    "The looms of Harrowgate were driven by water from the River Senn, led over a weir above the town.",
    "The station of Harrowgate closed in 1964 and houses a museum of signal lamps.",
    "Rye flour absorbs more water than wheat.",
    "In the opening, bring out knights before bishops and castle early. Rooks belong on open files, and a king without
     pawns in front of it is soon attacked by pieces that nobody noticed.",
];

/// Cosines with the query. The network has fused operators if `sha256` is that of the default model.
fn cosines(sha256: Option<&str>, passages: &[&str]) -> Vec<f64> {
    let store = Config::load(None, &[]).unwrap().store;
    let located = store.locate("all-minilm-l6-v2", Role::Embedding).unwrap();
    let kind = PassageNetwork::Embedding {
        query_prefix: String::new(),
        passage_prefix: String::new(),
        pooling: None,
        cache_entries: 0,
    };
    let settings = PassageSettings {
        kind,
        network: located.path,
        name: located.name,
        sha256: sha256.map_or(located.sha256, str::to_owned),
        library: store.locate("onnxruntime", Role::Library).unwrap().path,
        most_tokens: 512,
        threads: 2,
        batch: 0,
    };
    let mut scores = Vec::new();
    with_passage_model(&settings, &mut |model| {
        let query = model.query("Which river drove the looms of Harrowgate?", false).unwrap();
        let shortening = Shortening { passage_tokens: None, truncate: false, from_start: false };
        let encoded: Vec<Encoded> =
            passages.iter().map(|text| model.passage(&query, text, shortening).unwrap()).collect();
        scores = model.score(&query, &encoded.iter().collect::<Vec<_>>()).unwrap();
    })
    .unwrap();
    scores
}

#[test]
fn fused_operators_change_cosines_by_the_rounding_of_activations() {
    let (fused, published) = (cosines(None, &PASSAGES), cosines(Some(""), &PASSAGES));
    for (one, other) in fused.iter().zip(&published) {
        assert!(one != other && (one - other).abs() < 0.02, "{fused:?} {published:?}");
    }
}

/// The runtime quantises with the range of a whole step.
#[test]
fn a_cosine_does_not_depend_on_the_other_passages() {
    let together = cosines(None, &PASSAGES);
    let one_by_one: Vec<f64> = PASSAGES.iter().flat_map(|&passage| cosines(None, &[passage])).collect();
    assert_eq!(together, one_by_one);
}
