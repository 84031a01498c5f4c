//! Mistakes of a first contact. Every error names the next step.

use std::io::{Read, Write};
use std::net::TcpListener;

use tempfile::TempDir;

use crate::{certificates, common, program};
use certificates::{Authority, install};
use common::Scripted;
use program::{error, run};
use server::rpc::server::ServerOptions;
use server::transport::{Access, AccessFiles};

/// A file with this content.
fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn asked(passages: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["rerank", "--query", "q", passages], more].concat());
    (output.status.code(), error(&output))
}

#[test]
fn an_address_without_a_grpc_server_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let passages = file(&folder, "passages.jsonl", "\"one\"\n");
    // An HTTP/1 server that answers as ours would.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read_exact(&mut [0; 24]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    for (address, code, step) in [
        (http.as_str(), 1, "give its gRPC port (50051 by default, not that of HTTP)"),
        ("127.0.0.1:9", 69, "is the server running? `rerankd serve` listens on 127.0.0.1:50051"),
        ("127.0.0.1", 69, "the address has no port: give 127.0.0.1:50051"),
        ("127.0.0.1:99999", 69, "its port must be a number from 1 to 65535"),
        ("127.0.0.1:9/v1/rerank", 2, "must be HOST:PORT or a URL without a path"),
        ("not an address", 2, "must be HOST:PORT or a URL, such as 127.0.0.1:50051"),
    ] {
        let (found, said) = asked(&passages, &["--server", address]);
        assert!(found == Some(code) && said.contains(step), "{address}: {found:?} {said}");
    }
    let health = run(&["health", "--server", &http]);
    assert!(error(&health).contains("give its gRPC port"), "{}", error(&health));
}

#[test]
fn tls_and_plain_text_are_told_apart() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let passages = file(&folder, "passages.jsonl", "\"one\"\n");
    let plain = runtime.block_on(Scripted::default().serve());
    let (_, said) = asked(&passages, &["--server", &format!("https://{}", plain.address)]);
    assert!(said.contains(&format!("the server does not use TLS: give http://{}", plain.address)), "{said}");
    let files = install(folder.path(), &Authority::new(), None);
    let access =
        Access::load(&AccessFiles { tls: Some(files), tokens: None }).unwrap_or_else(|faults| panic!("{faults:?}"));
    let options = ServerOptions { access, ..ServerOptions::default() };
    let secret = runtime.block_on(Scripted::default().serve_with(options));
    let (_, said) = asked(&passages, &["--server", &secret.address]);
    assert!(said.contains("https:// for TLS"), "{said}");
    let (_, said) = asked(&passages, &["--server", &format!("https://{}", secret.address)]);
    assert!(said.contains("--ca names the PEM file of its authority"), "{said}");
    runtime.block_on(async {
        plain.stop().await;
        secret.stop().await;
    });
}

#[test]
fn a_wrong_file_of_passages_is_named_with_the_right_form() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, step) in [
        ("empty.jsonl", "", "empty.jsonl: has no passages"),
        ("array.jsonl", "[{\"text\": \"a\"}]\n", "array.jsonl:1: is a list: write one object per line"),
        ("pretty.jsonl", "[\n  {\"text\": \"a\"}\n]\n", "as `jq -c '.[]'` does"),
        ("plain.txt", "plain text\n", "plain.txt:1: is not valid JSON"),
        ("names.jsonl", "{\"txt\": \"a\"}\n", "no passage of the file has a text; the line has the field"),
    ] {
        let (code, said) = asked(&file(&folder, name, text), &["--server", "127.0.0.1:9"]);
        assert!(code == Some(2) && said.contains(step), "{code:?} {said}");
    }
}

#[test]
fn an_option_without_effect_is_told() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Scripted::default().serve());
    let folder = tempfile::tempdir().unwrap();
    let passages = file(&folder, "passages.jsonl", "\"one\"\n\"two\"\n");
    let told = |method: &str| {
        let (code, said) = asked(&passages, &["--server", &server.address, "--method", method, "--design", "latin"]);
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let said = told("query-generation");
    assert!(said.contains("--design: no effect with query-generation; take --method moi"), "{said}");
    assert!(!told("moi").contains("no effect"));
    runtime.block_on(server.stop());
}

#[test]
fn a_port_in_use_and_a_wrong_model_name_their_key() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).unwrap();
    let serve = |arguments: &[&str]| {
        let output = run(&[&["serve"], arguments].concat());
        (output.status.code(), error(&output))
    };
    for (arguments, key, step) in [
        (["--listen", &taken.1, "--http-listen", "off"], "server.listen: cannot listen on", "--listen sets another"),
        (["--listen", "127.0.0.1:0", "--http-listen", &taken.1], "http.listen: cannot listen on", "--http-listen off"),
    ] {
        let (code, said) = serve(&arguments);
        assert!(code == Some(1) && said.contains(key) && said.contains(step), "{code:?} {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let lines = file(&folder, "lists.jsonl", "{\"question\": \"q\"}\n");
    let off = ["--listen", "127.0.0.1:0", "--http-listen", "off", "--model"];
    let (code, said) = serve(&[&off[..], &[&lines]].concat());
    assert!(code == Some(1) && said.contains("generator.model: ") && said.contains("is not a GGUF model"), "{said}");
    let (code, said) = serve(&[&off[..], &["nobody"]].concat());
    assert!(code == Some(1) && said.contains("`rerankd models list`") && !said.contains("onnxruntime"), "{said}");
    let (code, said) = serve(&[&off[..4], &["--set", "embedding.model=nobody"]].concat());
    assert!(code == Some(1) && said.contains("embedding.model: \"nobody\", for embedding, is neither"), "{said}");
    let unclear = run(&["serve", "--listen", "localhost:50051"]);
    assert!(error(&unclear).contains("must be an IP address and a port, such as"), "{}", error(&unclear));
    let unclear = run(&["serve", "--http-listen", "here"]);
    assert!(
        error(&unclear).contains("must be an address and port such as 127.0.0.1:8080, or off"),
        "{}",
        error(&unclear)
    );
}
