//! A server process, and requests to it over gRPC.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use prefix_scheduler::model::{AdapterInfo, weights};
use protocol::v1;
use protocol::v1::model_service_client::ModelServiceClient;
use protocol::v1::rerank_service_client::RerankServiceClient;
use protocol::v1::utility_service_client::UtilityServiceClient;
use tonic::transport::Channel;

use crate::report;

/// Longest time of loading a model.
const LOADS: Duration = Duration::from_mins(3);

/// Kills the process when it is dropped.
pub struct Server {
    child: Child,
    channel: Channel,
    _scratch: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a server with this many bytes of cached states, and waits until it is ready.
    pub async fn start(model: Option<&str>, memory_bytes: u64) -> anyhow::Result<Self> {
        Self::with(model, memory_bytes, &[]).await
    }

    /// [`Server::start`] with settings, `section.key=value`.
    pub async fn with(model: Option<&str>, memory_bytes: u64, settings: &[String]) -> anyhow::Result<Self> {
        Self::with_environment(model, memory_bytes, settings, &[]).await
    }

    /// [`Server::with`] in an environment with these variables, which only llama.cpp reads.
    pub async fn with_environment(
        model: Option<&str>,
        memory_bytes: u64,
        settings: &[String],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let address_file = scratch.path().join("address");
        // A machine with an accelerator may have neither cargo nor the folder of the build.
        let program = std::env::var_os("RERANKD").unwrap_or_else(|| env!("CARGO_BIN_EXE_rerankd").into());
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--http-listen", "off", "--address-file"]).arg(&address_file);
        command.args([
            "--set",
            &format!("passage_cache.memory_bytes={memory_bytes}"),
            "--set",
            "position_bias.learn=false",
        ]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        command.envs(environment.iter().copied());
        if let Some(model) = model {
            command.args(["--model", model]);
        }
        let log = scratch.path().join("log");
        let mut child = command.stderr(std::fs::File::create(&log)?).spawn()?;
        let started = Instant::now();
        while !address_file.exists() {
            anyhow::ensure!(
                child.try_wait()?.is_none() && started.elapsed().as_secs() < 60,
                "the server did not start; its log:\n{}",
                std::fs::read_to_string(&log)?
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let address = format!("http://{}", std::fs::read_to_string(&address_file)?);
        let channel = Channel::from_shared(address)?.connect().await?;
        let mut server = Self { child, channel, _scratch: scratch };
        loop {
            anyhow::ensure!(
                server.child.try_wait()?.is_none() && started.elapsed() < LOADS,
                "the model did not load; the server's log:\n{}",
                std::fs::read_to_string(&log)?
            );
            let info = server.info().await?;
            if info.worker.is_some_and(|worker| worker.ready) {
                let generator = info.generator.unwrap_or_default();
                let adapter = generator.adapter.map(|v1::AdapterInfo { name, sha256, scale }| AdapterInfo {
                    name,
                    sha256,
                    scale,
                });
                let running = weights(&generator.running_sha256, adapter.as_ref());
                report::about_model(&generator.name, &running, &generator.encoding);
                return Ok(server);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn info(&self) -> anyhow::Result<v1::GetServerInfoResponse> {
        let mut client = ModelServiceClient::new(self.channel.clone());
        Ok(client.get_server_info(v1::GetServerInfoRequest {}).await?.into_inner())
    }

    pub fn utility(&self) -> UtilityServiceClient<Channel> {
        UtilityServiceClient::new(self.channel.clone())
    }

    pub fn client(&self) -> RerankServiceClient<Channel> {
        RerankServiceClient::new(self.channel.clone())
    }

    /// Reranks, and measures the seconds from the request to its answer.
    pub async fn rerank(
        &self,
        method: v1::Method,
        query: &str,
        passages: &[String],
    ) -> anyhow::Result<(f64, v1::RerankResponse)> {
        let request = request(method, query, passages);
        let mut client = self.client();
        let started = Instant::now();
        let answer = client.rerank(request).await?.into_inner();
        Ok((started.elapsed().as_secs_f64(), answer))
    }

    /// Resident memory in MB.
    pub fn resident(&self) -> anyhow::Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()))?;
        Ok(text.split(' ').nth(1).unwrap_or("0").parse::<f64>()? * 4096.0 / 1e6)
    }
}

pub fn request(method: v1::Method, query: &str, passages: &[String]) -> v1::RerankRequest {
    let passage = |(index, text): (usize, &String)| v1::Passage {
        id: index.to_string(),
        text: text.clone(),
        ..v1::Passage::default()
    };
    v1::RerankRequest {
        query: query.to_owned(),
        passages: passages.iter().enumerate().map(passage).collect(),
        method: method.into(),
        ..v1::RerankRequest::default()
    }
}

/// Utilities in the order of the request.
pub fn utilities(answer: &v1::RerankResponse) -> Vec<f64> {
    let mut by_place = vec![0.0; answer.results.len()];
    for result in &answer.results {
        by_place[result.original_index as usize] = result.utility;
    }
    by_place
}
