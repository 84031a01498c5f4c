//! Differences between equal requests: cached against new passages, without and with other clients.

use std::time::Instant;

use protocol::v1::Method;

use crate::report::Line;
use crate::server::{Server, utilities};
use crate::texts::Texts;

const CLIENTS: u64 = 16;

fn largest(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f64::max)
}

pub async fn run(model: Option<&str>, texts: &Texts) -> anyhow::Result<()> {
    let mut busy = 0.0;
    for (memory, reproducible, name) in
        [(0, false, "without the store"), (1 << 30, false, "with the store"), (0, true, "reproducible")]
    {
        // Sixteen lists at once exceed the default wait of a request without a deadline.
        let settings = [format!("generator.reproducible={reproducible}"), "limits.queue_seconds=unlimited".to_owned()];
        let server = Server::with(model, memory, &settings).await?;
        let passages = |client: u64| -> Vec<String> {
            (0..10).map(|index| texts.passage(7_000_000 + 100 * client + index, 110)).collect()
        };
        let query = texts.query(7_000_000, 17);
        let ask = async |client: u64| -> anyhow::Result<Vec<f64>> {
            Ok(utilities(&server.rerank(Method::QueryGeneration, &query, &passages(client)).await?.1))
        };
        // The first request of a server also evaluates the prompt prefix, so it is not compared.
        ask(CLIENTS).await?;
        let mut alone = Vec::new();
        let (mut again, mut magnitude) = (0.0_f64, 0.0_f64);
        for client in 0..CLIENTS {
            let first = ask(client).await?;
            again = again.max(largest(&first, &ask(client).await?));
            magnitude = first.iter().fold(magnitude, |most, utility| most.max(utility.abs()));
            alone.push(first);
        }
        // Lists that are new to the server.
        let started = Instant::now();
        futures(CLIENTS, &async |client| ask(client + 100).await).await?;
        let seconds = started.elapsed().as_secs_f64();
        if memory == 0 && !reproducible {
            busy = seconds;
        }
        let together = futures(CLIENTS, &ask).await?;
        let beside = alone.iter().zip(&together).map(|(left, right)| largest(left, right)).fold(0.0, f64::max);
        Line::new(&format!("{name}: {CLIENTS} clients with lists that are new"), seconds, "s")
            .ratio(seconds / busy)
            .print();
        Line::new(&format!("{name}: largest utility"), magnitude, "nats").print();
        Line::new(&format!("{name}: largest difference of an equal request, alone"), again, "nats").print();
        Line::new(&format!("{name}: largest difference beside {CLIENTS} clients"), beside, "nats").print();
    }
    Ok(())
}

/// All clients at once, in their order.
async fn futures<F>(clients: u64, ask: &F) -> anyhow::Result<Vec<Vec<f64>>>
where
    F: AsyncFn(u64) -> anyhow::Result<Vec<f64>>,
{
    let mut waiting: Vec<_> = (0..clients).map(|client| Some(Box::pin(ask(client)))).collect();
    let mut answers: Vec<Option<Vec<f64>>> = vec![None; waiting.len()];
    std::future::poll_fn(|context| {
        for (slot, answer) in waiting.iter_mut().zip(&mut answers) {
            if let Some(future) = slot
                && let std::task::Poll::Ready(outcome) = future.as_mut().poll(context)
            {
                match outcome {
                    Ok(utilities) => *answer = Some(utilities),
                    Err(error) => return std::task::Poll::Ready(Err(error)),
                }
                *slot = None;
            }
        }
        if waiting.iter().all(Option::is_none) { std::task::Poll::Ready(Ok(())) } else { std::task::Poll::Pending }
    })
    .await?;
    Ok(answers.into_iter().flatten().collect())
}
