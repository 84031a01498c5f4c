//! `rerankd serve` as a child process with the default models.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use protocol::client::Client;
use protocol::v1;
use protocol::v1::rerank_service_client::RerankServiceClient;
use rustix::process::{Pid, Signal, kill_process};

use crate::program;

/// A server process. It is killed when a test fails.
pub struct Serving {
    pub child: Child,
    pub address: String,
    /// The folder of the configuration and the files that it names.
    pub folder: Arc<tempfile::TempDir>,
    log: Arc<Mutex<String>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program under these shell settings, such as `ulimit -n 256;`.
pub fn limited(settings: &str, arguments: &[&str]) -> Command {
    if settings.is_empty() {
        return program::command(arguments);
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{settings} exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_rerankd")]).args(arguments);
    shell.env_remove("RERANKD_CONFIG").stdin(std::process::Stdio::null());
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    shell
}

/// No file may grow beyond a kilobyte. A write beyond it fails as on a full disk, instead of ending the process.
pub const FULL_DISK: &str = "trap '' XFSZ; ulimit -f 1;";

impl Serving {
    /// Starts a server with the configuration that `config` makes for a folder, and waits until it serves.
    pub async fn start(config: impl Fn(&Path) -> String, environment: &[(&str, &str)]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let text = config(folder.path());
        Self::start_in(&folder, &text, environment, "").await
    }

    /// Starts a server in a folder, after `settings` of a shell.
    pub async fn start_in(
        folder: &Arc<tempfile::TempDir>,
        config: &str,
        environment: &[(&str, &str)],
        settings: &str,
    ) -> Self {
        let (file, place) = (folder.path().join("rerankd.toml"), folder.path().join("address"));
        std::fs::write(&file, config).unwrap();
        let _ = std::fs::remove_file(&place);
        let mut child = limited(settings, &["serve", "--listen", "127.0.0.1:0", "--http-listen", "off"])
            .arg("--address-file")
            .arg(&place)
            .arg("--config")
            .arg(&file)
            .envs(environment.iter().copied())
            .spawn()
            .unwrap();
        let (log, lines) = (Arc::new(Mutex::new(String::new())), BufReader::new(child.stderr.take().unwrap()));
        let written = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut log = written.lock();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut serving = Self { child, address: String::new(), folder: Arc::clone(folder), log };
        let end = Instant::now() + Duration::from_mins(1);
        while serving.address.is_empty() {
            assert!(Instant::now() < end && serving.child.try_wait().unwrap().is_none(), "{}", serving.log());
            serving.address = std::fs::read_to_string(&place).unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let server = serving.address.as_str().into();
        protocol::client::wait_until_serving(&server, Duration::from_mins(1))
            .await
            .unwrap_or_else(|_| panic!("{}", serving.log()));
        serving
    }

    pub fn log(&self) -> String {
        self.log.lock().clone()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub async fn exit(&mut self, patience: Duration) -> ExitStatus {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn wait_for_log(&self, text: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.log().contains(text) {
            assert!(Instant::now() < end, "{text} is not in\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub async fn client(&self) -> RerankServiceClient<tonic::transport::Channel> {
        RerankServiceClient::connect(format!("http://{}", self.address)).await.unwrap()
    }

    /// Begins a call that takes the default generator much longer than a test.
    pub async fn begin_long_call(&self) {
        let mut client = self.client().await;
        tokio::spawn(async move {
            let passages = (0..12).map(|number| format!("{number} {}", "The looms stood by the river. ".repeat(40)));
            client.rerank(request(v1::Method::Moi, passages.collect())).await
        });
        let client = Client::new(self.address.as_str().into(), usize::MAX);
        let end = Instant::now() + Duration::from_secs(30);
        while client.server_info().await.unwrap().worker.unwrap().active == 0 {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub fn request(method: v1::Method, passages: Vec<String>) -> v1::RerankRequest {
    let passage = |text| v1::Passage { text, ..v1::Passage::default() };
    let passages = passages.into_iter().map(passage).collect();
    v1::RerankRequest {
        query: "Which river drove the looms?".into(),
        method: method.into(),
        passages,
        ..v1::RerankRequest::default()
    }
}

/// A short request for the default generator.
pub fn short(method: v1::Method) -> v1::RerankRequest {
    request(method, vec!["Rye flour absorbs water.".into(), "The looms were driven by the Senn.".into()])
}

/// A configuration whose store is in `folder` and shares the models of the user's store.
pub fn own_store(folder: &Path) -> String {
    let (store, shared) = (folder.join("store"), rerankd::config::Config::load(None, &[]).unwrap().store);
    std::fs::create_dir_all(&store).unwrap();
    for entry in std::fs::read_dir(shared.root()).unwrap().map(Result::unwrap) {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let link = store.join(entry.file_name());
        if !hidden && !link.exists() {
            std::os::unix::fs::symlink(entry.path(), link).unwrap();
        }
    }
    format!("[models]\nstore = \"{}\"\n", store.display())
}
