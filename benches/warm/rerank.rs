//! Duration of a complete rerank: cached passages against new ones.

use protocol::v1::Method;

use crate::report::Line;
use crate::server::Server;
use crate::texts::Texts;

const PASSAGE: usize = 110;
const QUERY: usize = 17;

/// Number of passages, rounds, and the goal for the ratio.
const SIZES: [(usize, u64, Option<f64>); 4] = [(10, 5, Some(4.5)), (20, 5, None), (50, 3, None), (100, 3, Some(4.0))];

pub async fn run(model: Option<&str>, texts: &Texts, wanted: &[usize]) -> anyhow::Result<()> {
    // Enough for all passages of a round: 100 of 110 tokens take 250 MB with the default generator.
    let server = Server::start(model, 4 << 30).await?;
    server.rerank(Method::QueryGeneration, &texts.query(1, QUERY), &[texts.passage(1, PASSAGE)]).await?;
    for (method, name) in [(Method::QueryGeneration, "query-generation"), (Method::Unspecified, "the default")] {
        for (number, rounds, goal) in
            SIZES.into_iter().filter(|(number, ..)| wanted.is_empty() || wanted.contains(number))
        {
            let (mut cold, mut warm, mut ratios, mut tokens) = (Vec::new(), Vec::new(), Vec::new(), (0, 0));
            for round in 0..rounds {
                let seed = 1_000_000 * (u64::from(method as u8) + 1) + 10_000 * number as u64 + 1_000 * round;
                let passages: Vec<String> =
                    (0..number as u64).map(|index| texts.passage(seed + index, PASSAGE)).collect();
                let mut first = 0.0;
                for (turn, seconds) in [&mut cold, &mut warm].into_iter().enumerate() {
                    let query = texts.query(seed + 500 + turn as u64, QUERY);
                    let (took, answer) = server.rerank(method, &query, &passages).await?;
                    seconds.push(took);
                    let usage = answer.usage.unwrap_or_default();
                    if turn == 0 {
                        first = took;
                        tokens.0 = usage.tokens;
                    } else {
                        ratios.push(first / took);
                        tokens.1 = usage.tokens;
                    }
                }
            }
            Line::new(&format!("{name}, {number} passages: read for the first time"), median(&mut cold), "s").print();
            let line = Line::new(&format!("{name}, {number} passages: read before"), median(&mut warm), "s");
            let line = line.ratio(median(&mut ratios));
            if let Some(goal) = goal { line.at_least(goal) } else { line }.print();
            Line::new(&format!("{name}, {number} passages: tokens evaluated, read before"), tokens.1 as f64, "tokens")
                .ratio(tokens.0 as f64 / tokens.1 as f64)
                .print();
        }
    }
    Ok(())
}

pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
