//! Scores of many designs on labelled questions: collected once, judged as often as one likes.
//!
//! `cargo bench --bench scoring -- collect --data questions.jsonl.gz --out scores.jsonl` runs the generator;
//! `… -- judge scores.jsonl …` fits every design to the scores and prints JSON lines.

mod collect;
mod data;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match command.as_str() {
        "collect" => collect::run(&rest),
        other => anyhow::bail!("unknown command {other:?}: collect or judge"),
    }
}
