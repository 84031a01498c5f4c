//! `rerankd calibrate --ranking --show` and `--remove`: stored calibrations.

use serde_json::{Value, json};

use super::{Failure, SettingsArgs, output};
use crate::app::calibration_file::CalibrationFile;
use crate::app::profile_file::ProfileError;
use crate::{app, telemetry};
use engine::fusion::calibration::Calibration;
use engine::types::Role;

/// The name for all methods.
const ALL: &str = "all";

/// The files of the configured generators, with their content.
fn stored(settings: &SettingsArgs) -> Result<Vec<(Role, CalibrationFile, Vec<Calibration>)>, Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let mut files = Vec::new();
    for (role, settings) in config.generators() {
        let located = app::identify(role, settings, &config.store).map_err(anyhow::Error::from)?;
        let file = app::calibration_file(&config.store, &located.measured_on(settings.frame));
        let calibrations = file.load().map_err(anyhow::Error::from)?;
        files.push((role, file, calibrations));
    }
    Ok(files)
}

/// The stored content, read again after the measurements. An unusable file was set aside and is reported; the
/// measurements are kept.
pub(super) fn kept<T: Default>(loaded: Result<T, ProfileError>) -> Result<T, Failure> {
    match loaded {
        Err(error @ ProfileError::Damaged { .. }) => {
            output::complain(&error.to_string());
            Ok(T::default())
        }
        other => Ok(other.map_err(anyhow::Error::from)?),
    }
}

/// Prints the stored calibrations: a table, or a JSON line for each.
pub(super) fn show(json: bool, settings: &SettingsArgs) -> Result<(), Failure> {
    let files = stored(settings)?;
    let all = files.iter().flat_map(|(role, _, calibrations)| calibrations.iter().map(|one| (*role, one)));
    if json {
        let lines: Vec<String> = all.map(|(role, one)| format!("{}\n", line(role, one))).collect();
        return output::print(&lines.concat());
    }
    let mut table = output::table(&[
        "generator",
        "method",
        "fused with",
        "weight, embedding weight",
        "intercept, slope",
        "log-odds of outranks_next per nat",
        "lists",
        "calibration error",
    ]);
    for (role, one) in all {
        table.add_row(vec![
            role.name().to_owned(),
            one.method.clone(),
            one.fused_with(),
            weights(one),
            format!("{:.3}, {:.3}", one.score.intercept, one.score.slope),
            one.outranks_per_nat.map_or_else(|| "-".to_owned(), |slope| format!("{slope:.3}")),
            one.lists.to_string(),
            one.calibration_error.map_or_else(|| "-".to_owned(), |error| format!("{error:.3}")),
        ]);
    }
    if table.is_empty() {
        return output::print("no calibration is stored; `rerankd calibrate --ranking FILE` makes one\n");
    }
    output::print(&output::shown(table))
}

/// The model's weight, and the embedding model's share of the rest, for people.
pub(super) fn weights(one: &Calibration) -> String {
    let cosines = |share: f64| format!(", {share:.1} of the rest");
    one.mix.map_or_else(
        || "-".to_owned(),
        |mix| format!("{:.2}{}", mix.weight, mix.embedding.map_or_else(String::new, cosines)),
    )
}

fn line(role: Role, one: &Calibration) -> Value {
    let mut line = fields(one);
    line["generator"] = role.name().into();
    line["calibration_error"] = one.calibration_error.into();
    line
}

/// The fields of a calibration in every line.
pub(super) fn fields(one: &Calibration) -> Value {
    json!({
        "method": one.method,
        "fused_with": one.mix.map(|mix| mix.source.name()),
        "embedding_sha256": one.embedding,
        "model_sha256": one.model,
        "fusion_weight": one.mix.map(|mix| mix.weight),
        "embedding_weight": one.mix.and_then(|mix| mix.embedding),
        "intercept": one.score.intercept,
        "slope": one.score.slope,
        "outranks_per_nat": one.outranks_per_nat,
        "lists": one.lists,
        "passages": one.passages,
    })
}

/// Removes the calibrations of these methods. A running server stops using them within seconds.
pub(super) fn remove(methods: &[String], settings: &SettingsArgs) -> Result<(), Failure> {
    let files = stored(settings)?;
    let named = |one: &Calibration| methods.iter().any(|method| *method == one.method || method == ALL);
    let unknown = methods.iter().find(|method| {
        *method != ALL && !files.iter().any(|(_, _, stored)| stored.iter().any(|one| one.method == **method))
    });
    if let Some(method) = unknown {
        return Err(Failure::Input(format!("--remove: no calibration of {method:?} is stored")));
    }
    for (_, file, stored) in files {
        let kept: Vec<Calibration> = stored.iter().filter(|one| !named(one)).cloned().collect();
        if kept.len() < stored.len() {
            file.save(&kept).map_err(anyhow::Error::from)?;
            output::complain(&format!("{} removed from {}", stored.len() - kept.len(), file.path().display()));
        }
    }
    Ok(())
}
