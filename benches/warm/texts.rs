//! Passages and queries of a given number of tokens, made of words, and the passages of a stream of requests.

use std::sync::Arc;

use engine::prompt::{Language, PassageTokens};
use models::catalog::Role;
use models::llama::Vocabulary;
use numeric::sampling::unit;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rerankd::config::Config;

const WORDS: &[&str] = &[
    "river",
    "weir",
    "loom",
    "cotton",
    "town",
    "mill",
    "water",
    "wheel",
    "north",
    "trade",
    "bridge",
    "stone",
    "winter",
    "market",
    "grain",
    "canal",
    "engine",
    "steam",
    "valley",
    "road",
    "council",
    "school",
    "library",
    "painter",
    "harbour",
    "ship",
    "captain",
    "island",
    "forest",
    "timber",
    "carpenter",
    "glass",
    "window",
    "garden",
    "bread",
    "rye",
    "flour",
    "oven",
    "copper",
    "lamp",
    "signal",
    "station",
    "museum",
    "railway",
    "the",
    "of",
    "and",
    "was",
    "in",
    "by",
    "near",
    "first",
    "old",
    "built",
    "opened",
    "closed",
    "moved",
    "sold",
    "found",
    "long",
    "under",
    "after",
    "before",
    "with",
];

/// A generator's tokenizer, for counting.
pub struct Texts {
    pub language: Language,
}

fn source(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn word(source: &mut ChaCha8Rng) -> &'static str {
    WORDS[usize::try_from(source.next_u64() % WORDS.len() as u64).unwrap()]
}

impl Texts {
    pub fn load(model: Option<&str>) -> anyhow::Result<Self> {
        let flags: Vec<(String, String)> =
            model.map(|model| ("generator.model".to_owned(), model.to_owned())).into_iter().collect();
        let config = Config::load(None, &flags)?;
        let located = config.store.locate(&config.generator.model, Role::Generator)?;
        let vocabulary = Vocabulary::load(&located.path)?;
        Ok(Self { language: Language::new(Arc::new(vocabulary), config.generator.frame) })
    }

    /// Words until `tokens` are reached, counted by `count`.
    fn grow(seed: u64, tokens: usize, count: impl Fn(&str) -> usize) -> String {
        let mut source = source(seed);
        let mut text = word(&mut source).to_owned();
        while count(&text) < tokens {
            text = format!("{text} {}", word(&mut source));
        }
        text
    }

    /// A passage of `tokens` tokens in its prompt, or one or two more.
    pub fn passage(&self, seed: u64, tokens: usize) -> String {
        Self::grow(seed, tokens, |text| PassageTokens::new(self.language.tokenizer.as_ref(), "", text).len())
    }

    /// A query of `tokens` tokens, or one or two more.
    pub fn query(&self, seed: u64, tokens: usize) -> String {
        Self::grow(seed ^ 0x5eed, tokens, |text| self.language.query(text).len())
    }
}

/// Requests of `each` distinct passages out of `passages`, drawn by Zipf's law with exponent 1.
pub fn zipf(requests: usize, each: usize, passages: usize) -> Vec<Vec<usize>> {
    let mut sums = Vec::with_capacity(passages);
    let mut sum = 0.0;
    for rank in 1..=passages {
        sum += 1.0 / rank as f64;
        sums.push(sum);
    }
    let mut source = source(7);
    let mut draw = || {
        let at = unit(source.next_u64()) * sum;
        sums.partition_point(|below| *below <= at).min(passages - 1)
    };
    let request = |_| {
        let mut chosen = Vec::with_capacity(each);
        while chosen.len() < each {
            let passage = draw();
            if !chosen.contains(&passage) {
                chosen.push(passage);
            }
        }
        chosen
    };
    (0..requests).map(request).collect()
}
