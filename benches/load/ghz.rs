//! The JSON schema of ghz's reports, for tools that read them.
//!
//! As in ghz, times are nanoseconds except the marks of the histogram, which are seconds, and distributions are over
//! the calls that were answered without an error.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;

use super::offer::{Shot, Target};

/// Marks of the histogram after the first.
const BUCKETS: usize = 10;

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The code's name in Go, whose spelling ghz has.
fn name(code: Code) -> String {
    match code {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        other => format!("{other:?}"),
    }
}

fn error(shot: &Shot) -> String {
    if shot.code == Code::Ok {
        return String::new();
    }
    format!("rpc error: code = {} desc = {}", name(shot.code), shot.message)
}

/// The options of a run.
pub struct Options<'a> {
    /// The server.
    pub target: &'a Target,
    /// True if requests were sent at their times, regardless of earlier answers.
    pub open_loop: bool,
    /// The period in which requests were sent.
    pub period: Duration,
}

/// The report of a run. As in ghz, `date` is the end of the run; `options` has no metadata, so no token is in it.
pub fn report(run: &str, shots: &[Shot], options: &Options<'_>) -> Value {
    let period = options.period;
    let (call, host) = match options.target {
        Target::Grpc(address) => ("rerankd.v1.RerankService.Rerank", address),
        // Over HTTP the report has the equivalent gRPC statuses.
        Target::Http { url, .. } => ("POST", url),
    };
    let mut shots: Vec<&Shot> = shots.iter().collect();
    shots.sort_by_key(|shot| shot.date);
    let mut answered: Vec<Duration> =
        shots.iter().filter(|shot| shot.code == Code::Ok).map(|shot| shot.latency()).collect();
    answered.sort();
    let count = |key: &dyn Fn(&Shot) -> String| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for shot in &shots {
            *counts.entry(key(shot)).or_default() += 1;
        }
        counts
    };
    let mut errors = count(&error);
    errors.remove("");
    let sum: Duration = shots.iter().map(|shot| shot.latency()).sum();
    let average = nanoseconds(sum) / (shots.len() as u64).max(1);
    let percentile = |percent: usize| {
        let latency = answered.get((answered.len() * percent).div_ceil(100).saturating_sub(1));
        latency.map(|latency| json!({ "percentage": percent, "latency": nanoseconds(*latency) }))
    };
    let percentiles: Vec<Value> = [10, 25, 50, 75, 90, 95, 99].into_iter().filter_map(percentile).collect();
    let details = shots.iter().map(|shot| {
        json!({
            "timestamp": prost_types::Timestamp::from(shot.date).to_string(),
            "latency": nanoseconds(shot.latency()),
            "error": error(shot),
            "status": name(shot.code),
        })
    });
    json!({
        "name": run,
        "date": prost_types::Timestamp::from(std::time::SystemTime::now()).to_string(),
        "endReason": "timeout",
        "options": {
            "call": call, "host": host, "insecure": true, "total": shots.len(),
            "async": options.open_loop, "duration": nanoseconds(period), "load-schedule": "const",
            "concurrency-schedule": "const", "binary": false,
            "CPUs": std::thread::available_parallelism().map_or(1, usize::from),
        },
        "count": shots.len(),
        "total": nanoseconds(period),
        "average": average,
        "fastest": answered.first().map_or(0, |latency| nanoseconds(*latency)),
        "slowest": answered.last().map_or(0, |latency| nanoseconds(*latency)),
        "rps": shots.len() as f64 / period.as_secs_f64(),
        "errorDistribution": errors,
        "statusCodeDistribution": count(&|shot| name(shot.code)),
        "latencyDistribution": percentiles,
        "histogram": histogram(&answered),
        "details": details.collect::<Vec<_>>(),
    })
}

/// Each mark with the number of latencies up to it and above the mark before.
fn histogram(sorted: &[Duration]) -> Vec<Value> {
    let (Some(fastest), Some(slowest)) = (sorted.first(), sorted.last()) else { return Vec::new() };
    let (fastest, slowest) = (fastest.as_secs_f64(), slowest.as_secs_f64());
    let width = (slowest - fastest) / BUCKETS as f64;
    let mark = |bucket: usize| if bucket == BUCKETS { slowest } else { fastest + width * bucket as f64 };
    let mut before = 0;
    let bucket = |bucket: usize| {
        let below = sorted.partition_point(|latency| latency.as_secs_f64() <= mark(bucket));
        let count = below - before;
        before = below;
        json!({ "mark": mark(bucket), "count": count, "frequency": count as f64 / sorted.len() as f64 })
    };
    (0..=BUCKETS).map(bucket).collect()
}
