//! `rerankd serve` as a process: signals, exit codes, the service manager, refused starts. Needs the default generator.
#![cfg(unix)]

use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::failures;
use crate::{program, serving};
use program::{command, error, run};
use protocol::client::Client;
use protocol::connect::Server;
use protocol::v1;
use protocol::v1::rerank_service_client::RerankServiceClient;
use rustix::process::Signal;
use serving::{Serving, request};

#[test]
fn a_start_that_exposes_everything_is_refused() {
    let refused = run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(error(&refused).contains("server.allow_insecure"), "{}", error(&refused));
    let missing = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--http-listen",
        "off",
        "--set",
        "auth.tokens_file=/nowhere/tokens",
        "--set",
        "tls.certificate=/nowhere/server.pem",
        "--set",
        "tls.key=/nowhere/server.key",
        "--set",
        "limits.unheard=1",
        "--set",
        "limits.passages=0",
    ]);
    assert_eq!(missing.status.code(), Some(78));
    // One start reports all faults: unknown keys, bad values and unreadable files.
    for fault in ["/nowhere/tokens", "/nowhere/server.pem", "limits.unheard: unknown key", "limits.passages: must be"] {
        assert!(error(&missing).contains(fault), "{}", error(&missing));
    }
}

#[test]
fn a_new_token_is_shown_once_with_its_line() {
    let output = run(&["token", "new", "search"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("rerankd_") && lines[1].starts_with("search:"), "{text}");
    assert_eq!(run(&["token", "new", "not a name"]).status.code(), Some(2));
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).unwrap();
    assert!(["SIGTERM", "SIGHUP", "75", "78"].iter().all(|word| help.contains(word)), "{help}");
}

#[tokio::test]
async fn sigterm_under_load_answers_every_call_and_exits_with_0() {
    let _alone = program::alone_here().await;
    let socket_folder = tempfile::tempdir().unwrap();
    let path = socket_folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let (heard, told) = std::sync::mpsc::channel();
    // A socket queues few messages, so a thread reads them.
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok(length) = socket.recv(&mut buffer) {
            if heard.send(String::from_utf8_lossy(&buffer[..length]).into_owned()).is_err() {
                return;
            }
        }
    });
    let environment = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let mut serving = Serving::start(|_| "[limits]\nqueue_seconds = \"unlimited\"".to_owned(), &environment).await;
    assert!(serving.log().contains("generator tried"), "{}", serving.log());
    let answered = Arc::new(AtomicUsize::new(0));
    let mut load = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (address, answered) = (serving.address.clone(), Arc::clone(&answered));
        load.spawn(async move {
            let mut client = RerankServiceClient::connect(format!("http://{address}")).await.unwrap();
            let texts = vec!["Rye flour absorbs water.".to_owned(), "The looms were driven by the Senn.".to_owned()];
            loop {
                match client.rerank(request(v1::Method::QueryGeneration, texts.clone())).await {
                    Ok(_) => answered.fetch_add(1, Ordering::SeqCst),
                    Err(status) => return status,
                };
            }
        });
    }
    while answered.load(Ordering::SeqCst) < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    serving.signal(Signal::TERM);
    let status = serving.exit(Duration::from_secs(25)).await;
    assert_eq!(status.code(), Some(0), "{}", serving.log());
    while let Some(status) = load.join_next().await {
        let status = status.unwrap();
        assert!(failures::unsent(&status), "an accepted call was not answered: {status:?}");
    }
    let told: Vec<String> = told.try_iter().collect();
    assert!(told.iter().any(|message| message.starts_with("STOPPING=1")), "{told:?}");
    assert!(told.iter().any(|message| message.starts_with("READY=1")), "{told:?}");
    assert!(told.iter().any(|message| message.trim_end() == "WATCHDOG=1"), "{told:?}");
}

#[tokio::test]
async fn a_cut_drain_has_its_own_exit_code() {
    let _alone = program::alone_here().await;
    let mut serving = Serving::start(|_| "[server]\ndrain_seconds = 1".to_owned(), &[]).await;
    serving.begin_long_call().await;
    serving.signal(Signal::TERM);
    assert_eq!(serving.exit(Duration::from_secs(20)).await.code(), Some(75), "{}", serving.log());
}

#[tokio::test]
async fn a_second_sigterm_ends_at_once() {
    let _alone = program::alone_here().await;
    let mut serving = Serving::start(|_| "[server]\ndrain_seconds = 600".to_owned(), &[]).await;
    serving.begin_long_call().await;
    serving.signal(Signal::TERM);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(serving.child.try_wait().unwrap().is_none(), "{}", serving.log());
    serving.signal(Signal::TERM);
    assert_eq!(serving.exit(Duration::from_secs(10)).await.code(), Some(75), "{}", serving.log());
}

#[tokio::test]
async fn sighup_reloads_tokens_and_log_filter_and_names_the_rest() {
    let _alone = program::alone_here().await;
    let config =
        |folder: &Path, rest: &str| format!("[auth]\ntokens_file = \"{}\"\n{rest}", folder.join("tokens").display());
    let token = || {
        let mut output = String::new();
        let mut child = command(&["token", "new", "search"]).spawn().unwrap();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        child.wait().unwrap();
        let mut lines = output.lines().map(str::to_owned);
        (lines.next().unwrap(), lines.next().unwrap())
    };
    let ((old, old_line), (new, new_line)) = (token(), token());
    let write = |folder: &Path, line: &str| std::fs::write(folder.join("tokens"), line).unwrap();
    let first = |folder: &Path| {
        write(folder, &old_line);
        config(folder, "")
    };
    let mut serving = Serving::start(first, &[]).await;
    let ask = |token: &str| {
        let server = Server { token: Some(token.to_owned()), ..serving.address.as_str().into() };
        async move { Client::new(server, usize::MAX).server_info().await }
    };
    assert!(ask(&old).await.is_ok() && ask(&new).await.is_err());
    let folder = serving.folder.path().to_owned();
    write(&folder, &new_line);
    std::fs::write(
        folder.join("rerankd.toml"),
        config(&folder, "[limits]\npassages = 7\n[log]\nfilter = \"info,rerankd=debug\""),
    )
    .unwrap();
    serving.signal(Signal::HUP);
    serving.wait_for_log("calibration reloaded").await;
    assert!(ask(&old).await.is_err() && ask(&new).await.is_ok());
    serving.wait_for_log("keys=\"limits.passages\"").await;
    // The refusal of the old token is logged at the new level only.
    serving.wait_for_log("DEBUG").await;
    std::fs::write(folder.join("rerankd.toml"), "[limits]\npassages = 0").unwrap();
    serving.signal(Signal::HUP);
    serving.wait_for_log("limits.passages: must be between").await;
    assert!(ask(&new).await.is_ok(), "a faulty file does not end the server");
    serving.signal(Signal::TERM);
    assert_eq!(serving.exit(Duration::from_secs(20)).await.code(), Some(0));
    assert!(!serving.log().contains(&new) && !serving.log().contains(&old));
}
