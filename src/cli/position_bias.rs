//! `rerankd position-bias`

use clap::Args;

use super::connection::ConnectionArgs;
use super::output::FormatArgs;
use super::{Failure, SettingsArgs, output, plot};
use crate::app;
use crate::app::profile_file::{Origin, built_in};
use engine::prompt::TEMPLATE_VERSION;
use protocol::convert_models::{adapter_to_wire, profiles_to_wire};
use protocol::v1;

/// Show the position-bias profiles of the generator: calibrated, learnt and built-in ones separately.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rerankd position-bias --server 127.0.0.1:50051")]
pub(super) struct PositionBiasArgs {
    /// Address of a server; by default the profiles stored on this machine are read.
    #[arg(long, value_name = "ADDRESS")]
    server: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) async fn run(args: PositionBiasArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    crate::telemetry::install(&config, true);
    let answer = match &args.server {
        Some(address) => args.connection.client(address, &config)?.position_bias().await?,
        None => {
            let located = app::identify(engine::types::Role::Generator, &config.generator, &config.store);
            let located = located.map_err(anyhow::Error::from)?;
            let measured = located.measured_on(config.generator.frame);
            let (mut profiles, mut problems) = (Vec::new(), Vec::new());
            for origin in [Origin::Calibrated, Origin::Learnt] {
                match app::profile_file(&config.store, &measured, origin).load() {
                    Ok(loaded) => profiles.push((origin, loaded)),
                    Err(problem) => problems.push(problem.to_string()),
                }
            }
            if config.use_built_in_position_bias {
                profiles.push((Origin::BuiltIn, built_in(&measured, TEMPLATE_VERSION)));
            }
            v1::GetPositionBiasResponse {
                profiles: profiles_to_wire(&profiles),
                model_sha256: located.sha256,
                adapter: located.adapter.as_ref().map(adapter_to_wire),
                template_version: TEMPLATE_VERSION.to_owned(),
                problems,
            }
        }
    };
    show(&answer, args.format)
}

/// Prints profiles: plots or JSON. Problems go to standard error.
pub(super) fn show(answer: &v1::GetPositionBiasResponse, format: FormatArgs) -> Result<(), Failure> {
    for problem in &answer.problems {
        output::complain(problem);
    }
    if format.is_json() {
        let profiles: Vec<serde_json::Value> = answer.profiles.iter().map(entry).collect();
        return output::json(&serde_json::json!({
            "profiles": profiles, "model_sha256": answer.model_sha256, "template_version": answer.template_version,
            "adapter": answer.adapter.as_ref().map(output::adapter), "problems": answer.problems,
        }));
    }
    if answer.profiles.is_empty() {
        return output::print("no position-bias profile; `rerankd calibrate` measures one\n");
    }
    let adapter = answer.adapter.as_ref().map_or_else(String::new, |adapter| {
        format!("of the generator with adapter {} at scale {}\n\n", adapter.name, adapter.scale)
    });
    output::print(&(adapter + &answer.profiles.iter().map(plot::profile).collect::<String>()))
}

fn entry(profile: &v1::PositionProfile) -> serde_json::Value {
    serde_json::json!({
        "subject": profile.subject().as_str_name(), "origin": profile.origin().as_str_name(),
        "passages": profile.passages, "observations": profile.observations,
        "means": profile.means, "standard_errors": profile.standard_errors,
    })
}
