//! A server for the time of the benchmark.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Killed when the benchmark ends, also after an error.
pub struct Server {
    pub address: String,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Number of the process.
    #[allow(dead_code, reason = "shared with the soak benchmark")]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts a server on a free port and waits until its generator is ready.
    pub async fn start(program: Option<&Path>, settings: &[String]) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let address_file = scratch.path().join("address");
        let mut command = Command::new(program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_rerankd"))));
        command.args(["serve", "--listen", "127.0.0.1:0", "--address-file"]).arg(&address_file);
        // Settings may open HTTP.
        command.args(["--set", "http.listen=off", "--set", "position_bias.learn=false", "--set", "log.filter=warn"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let mut server = Self { address: String::new(), child: command.spawn()? };
        let end = Instant::now() + Duration::from_mins(2);
        while !address_file.exists() {
            anyhow::ensure!(server.child.try_wait()?.is_none() && Instant::now() < end, "the server did not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.address = std::fs::read_to_string(&address_file)?;
        let channel = Channel::from_shared(format!("http://{}", server.address))?.connect().await?;
        let mut health = HealthClient::new(channel);
        while health.check(HealthCheckRequest::default()).await?.into_inner().status() as i32 != 1 {
            anyhow::ensure!(Instant::now() < end, "the server did not become ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }
}
