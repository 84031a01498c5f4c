//! Callers and their requests.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use protocol::v1;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tonic::metadata::{Ascii, MetadataValue};

/// A kind of client.
#[derive(Debug, Clone)]
pub struct Caller {
    pub name: Arc<str>,
    /// Its share of all requests, relative to the others'.
    pub weight: f64,
    pub priority: Option<u8>,
    /// From the time at which a request is due to be sent; `None` for none.
    pub deadline: Option<Duration>,
    pub passages: usize,
    /// Words of a passage.
    pub words: usize,
    pub method: v1::Method,
    /// Local address to call from: a server without authentication distinguishes callers by it.
    pub from: Option<IpAddr>,
    /// Bearer token.
    pub token: Option<String>,
}

impl FromStr for Caller {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut caller = Self {
            name: "search".into(),
            weight: 1.0,
            priority: None,
            deadline: Some(Duration::from_secs(3)),
            passages: 3,
            words: 60,
            method: v1::Method::Unspecified,
            from: None,
            token: None,
        };
        for pair in text.split(',') {
            let (key, value) = pair.split_once('=').ok_or_else(|| anyhow::anyhow!("{pair}: must be key=value"))?;
            match key {
                "name" => caller.name = value.into(),
                "weight" => caller.weight = value.parse()?,
                "priority" => caller.priority = Some(value.parse()?),
                "deadline" => {
                    let seconds: f64 = value.parse()?;
                    caller.deadline = (seconds > 0.0).then(|| Duration::from_secs_f64(seconds));
                }
                "passages" => caller.passages = value.parse()?,
                "words" => caller.words = value.parse()?,
                "method" => {
                    let name = format!("METHOD_{}", value.to_uppercase().replace('-', "_"));
                    let method = v1::Method::from_str_name(&name);
                    caller.method = method.ok_or_else(|| anyhow::anyhow!("method: {value:?} is not known"))?;
                }
                "from" => caller.from = Some(value.parse()?),
                "token" => caller.token = Some(value.to_owned()),
                _ => anyhow::bail!("{key}: unknown key of a caller"),
            }
        }
        anyhow::ensure!(caller.weight > 0.0, "weight: must be above 0");
        Ok(caller)
    }
}

const WORDS: [&str; 24] = [
    "mill", "weir", "wheel", "river", "grain", "stone", "turns", "slowly", "under", "the", "old", "bridge", "and",
    "every", "autumn", "water", "carries", "leaves", "past", "a", "quiet", "village", "of", "farmers",
];

fn text(random: &mut ChaCha8Rng, words: usize) -> String {
    let words: Vec<&str> = (0..words).map(|_| WORDS[random.random_range(0..WORDS.len())]).collect();
    words.join(" ")
}

impl Caller {
    /// The request of that number. Texts differ from request to request, so no cache can answer.
    pub fn request(&self, seed: u64, number: u64) -> v1::RerankRequest {
        let mut random = ChaCha8Rng::seed_from_u64(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let passage = |index: usize| v1::Passage {
            id: index.to_string(),
            text: text(&mut random, self.words),
            ..v1::Passage::default()
        };
        let passages = (0..self.passages).map(passage).collect();
        v1::RerankRequest {
            query: format!("where does the {} turn?", WORDS[usize::try_from(number).unwrap_or(0) % WORDS.len()]),
            passages,
            method: self.method.into(),
            ..v1::RerankRequest::default()
        }
    }

    /// Headers of every call.
    pub fn metadata(&self) -> anyhow::Result<Vec<(&'static str, MetadataValue<Ascii>)>> {
        let mut pairs = Vec::new();
        if let Some(priority) = self.priority {
            pairs.push(("x-rerankd-priority", priority.to_string().parse()?));
        }
        if let Some(token) = &self.token {
            pairs.push(("authorization", format!("Bearer {token}").parse()?));
        }
        Ok(pairs)
    }
}
