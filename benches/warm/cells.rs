//! Cache types: seconds of a rerank, bytes of states, and differences of utilities from half precision.

use protocol::v1::Method;

use crate::report::Line;
use crate::rerank::median;
use crate::server::{Server, utilities};
use crate::texts::Texts;

const TYPES: [&str; 3] = ["f16", "bf16", "q8_0"];
const LISTS: u64 = 8;

pub async fn run(model: Option<&str>, texts: &Texts) -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for cells in TYPES {
        servers.push(Server::with(model, 1 << 30, &[format!("generator.cache_type={cells}")]).await?);
    }
    // Seconds by type, for new and for cached passages.
    let mut seconds = vec![[Vec::new(), Vec::new()]; TYPES.len()];
    let (mut moved, mut pairs, mut swapped) = ([0.0_f64; 3], 0, [0; 3]);
    for list in 0..LISTS {
        let passages: Vec<String> = (0..10).map(|index| texts.passage(5_000_000 + 100 * list + index, 110)).collect();
        for turn in 0..2 {
            let query = texts.query(5_000_000 + 10 * list + turn, 17);
            let mut reference = Vec::new();
            for (place, server) in servers.iter().enumerate() {
                let (took, answer) = server.rerank(Method::QueryGeneration, &query, &passages).await?;
                if list > 0 {
                    seconds[place][usize::from(turn > 0)].push(took);
                }
                let found = utilities(&answer);
                if place == 0 {
                    reference = found;
                    pairs += reference.len() * (reference.len() - 1) / 2;
                    continue;
                }
                for (at, (one, other)) in reference.iter().zip(&found).enumerate() {
                    moved[place] = moved[place].max((one - other).abs());
                    let later = reference.iter().zip(&found).skip(at + 1);
                    swapped[place] += later.filter(|(left, right)| (one > *left) != (other > *right)).count();
                }
            }
        }
    }
    let mut reference = [0.0; 3];
    for (place, cells) in TYPES.iter().enumerate() {
        let bytes = servers[place].info().await?.warm.unwrap_or_default().bytes as f64 / 1e6;
        let [first, before] = &mut seconds[place];
        let found = [median(first), median(before), bytes];
        if place == 0 {
            reference = found;
        }
        for (index, (name, unit)) in
            [("read for the first time", "s"), ("read before", "s"), ("bytes of states", "MB")].into_iter().enumerate()
        {
            let line = Line::new(&format!("cells {cells}, {name}"), found[index], unit);
            line.ratio(found[index] / reference[index]).print();
        }
        Line::new(&format!("cells {cells}, largest change of a utility"), moved[place], "nats").print();
        Line::new(&format!("cells {cells}, pairs in another order"), swapped[place] as f64 / pairs as f64, "of all")
            .print();
    }
    Ok(())
}
