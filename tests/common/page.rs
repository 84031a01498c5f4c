//! The page of metrics: fetched over a socket, checked against the text format, and read.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use prefix_scheduler::call::Admission;
use server::observe::{Metrics, page};
use server::rpc::server::ServerOptions;
use server::transport::{Bounds, Protocol, listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::common::Running;
use crate::common::scripted::Observed;

/// A server with its page of metrics.
pub struct Observable {
    pub server: Running,
    pub page: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Observable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a server that is observed, and its page.
pub async fn observable(engine: Engine, observed: Arc<Observed>, queue_length: usize) -> Observable {
    observable_with(engine, observed, queue_length, ServerOptions::default()).await
}

/// [`observable`] with these options.
pub async fn observable_with(
    engine: Engine,
    observed: Arc<Observed>,
    queue_length: usize,
    options: ServerOptions,
) -> Observable {
    let metrics = Arc::new(Metrics::new(engine.clone()).unwrap());
    let admission = Admission::new(queue_length).observed_by(Arc::clone(&metrics) as _);
    let server = crate::common::serve_with_admission(engine, observed, admission, options).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let page = listener.local_addr().unwrap().to_string();
    let router = page::router(metrics, tokio::sync::watch::channel(true).1);
    let options = listener::Options::new(Protocol::Http1, Bounds::default());
    let task = tokio::spawn(listener::serve(listener, router, options, CancellationToken::new()));
    Observable { server, page, task }
}

impl Observable {
    /// The metrics now.
    pub async fn scrape(&self) -> Page {
        let (head, body) = get(&self.page, "/metrics").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
        Page::parse(&body)
    }

    /// Scrapes until `done` holds. The metrics of a call are complete shortly after its answer.
    pub async fn scrape_until(&self, what: &str, done: impl Fn(&Page) -> bool) -> Page {
        let end = std::time::Instant::now() + Duration::from_secs(20);
        loop {
            let page = self.scrape().await;
            if done(&page) {
                return page;
            }
            assert!(std::time::Instant::now() < end, "{what}: {:#?}", page.samples);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Head and body of an answer over HTTP.
pub async fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Samples by name and labels, as they stand on the page.
#[derive(Debug, Default)]
pub struct Page {
    pub kinds: BTreeMap<String, String>,
    pub samples: BTreeMap<String, f64>,
}

impl Page {
    /// Reads a page. Fails if it breaks the text format, version 0.0.4.
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line is not ended");
        let (mut page, mut helped, mut family) = (Self::default(), BTreeSet::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect(line);
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(page.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
                name.clone_into(&mut family);
            } else {
                let (series, value) = line.rsplit_once(' ').expect(line);
                let name = series.split('{').next().unwrap();
                assert!(page.family(name) == Some(&family), "{line} stands below {family}");
                check_labels(series);
                assert!(page.samples.insert(series.to_owned(), value.parse().expect(line)).is_none(), "{line} twice");
            }
        }
        assert!(page.kinds.keys().all(|name| helped.contains(name)));
        page.check_histograms();
        page
    }

    /// The metric that a sample belongs to.
    fn family(&self, sample: &str) -> Option<&String> {
        let own = |name: &str| self.kinds.get_key_value(name).map(|(name, _)| name);
        let part = |suffix: &str| {
            let name = sample.strip_suffix(suffix)?;
            own(name).filter(|name| self.kinds[*name] == "histogram")
        };
        own(sample).or_else(|| part("_bucket")).or_else(|| part("_sum")).or_else(|| part("_count"))
    }

    /// True if the page has this metric, or this part of a histogram.
    pub fn has(&self, name: &str) -> bool {
        self.family(name).is_some()
    }

    /// Sum of a metric's samples with all of these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let holds = |series: &str| {
            series.split('{').next() == Some(name) && wanted.iter().all(|label| series.contains(label.as_str()))
        };
        self.samples.iter().filter(|(series, _)| holds(series)).map(|(_, value)| value).sum()
    }

    /// Buckets are cumulative and end with a bound of +Inf that counts all.
    fn check_histograms(&self) {
        let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (series, value) in &self.samples {
            // `role` ends like the name of the bound.
            let Some(at) = series.find("{le=\"").or_else(|| series.find(",le=\"")) else { continue };
            let (before, rest) = (&series[..=at], &series[at + ",le=\"".len()..]);
            let (bound, after) = rest.split_once('"').unwrap();
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            let key = format!("{before}{after}").replace("_bucket{", "_count{").replace(",}", "}").replace("{}", "");
            buckets.entry(key).or_default().push((bound, *value));
        }
        assert!(!buckets.is_empty());
        for (count, mut buckets) in buckets {
            buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
            assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{count}: {buckets:?}");
            let last = buckets.last().unwrap();
            assert!(last.0.is_infinite());
            assert_eq!(Some(&last.1), self.samples.get(&count), "{count}");
            assert!(self.samples.contains_key(&count.replace("_count", "_sum")), "{count} has no sum");
        }
    }
}

fn check_labels(series: &str) {
    let Some((_, labels)) = series.split_once('{') else { return };
    let labels = labels.strip_suffix('}').expect(series);
    let names: Vec<&str> = labels.split("\",").map(|pair| pair.split("=\"").next().unwrap()).collect();
    assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())));
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{series}");
}
