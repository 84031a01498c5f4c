//! `rerankd calibrate --ranking`

use serde_json::{Value, json};

use super::shared::{self, Following};
use crate::app::calibration_file::CalibrationFile;
use crate::cli::calibrate::CalibrateArgs;
use crate::cli::{Failure, SettingsArgs, calibrations, output};
use crate::{app, telemetry};
use engine::types::RerankRequest;
use files::Empty;
use lab::evaluation::compare;
use lab::evaluation::ranking::{self, Answers, Asked, Fitted, Settings, TriedMix};
use lab::study::data::{Question, Sources};
use lab::study::journal::{Entry, Timing};
use lab::study::report::{Report, Table};
use lab::study::{Event, ask_all};

pub(in crate::cli) async fn run(args: CalibrateArgs, settings: &SettingsArgs) -> Result<(), Failure> {
    let config = settings.load(Vec::new())?;
    telemetry::install(&config, true);
    let threshold = args.relevance_threshold;
    let methods = compare::find(&args.method)?;
    if let Some(other) = methods.iter().find(|method| method.asks_judge()) {
        // A calibration does not name the entailment model, so it would still apply after that model was replaced.
        let problem = format!("{} is not calibrated: its scores depend on the entailment model", other.name());
        return Err(Failure::Input(format!("--method: {problem}")));
    }
    let sources =
        Sources { files: args.data.clone(), skip: args.skip, questions: args.limit, threshold, empty: Empty::LeftOut };
    let data = sources.load()?;
    output::warn(&data.warnings);
    let settings = Settings { passage_tokens: args.max_passage_tokens, threshold, seed: 0 };
    let engine = app::engine(&config).await?;
    let mut files = Vec::new();
    for model in engine.models().generators() {
        let generator = model.get()?;
        let file = app::calibration_file(&config.store, &generator.info.measured_on());
        // An unusable file is reported before the work starts.
        file.load().map_err(anyhow::Error::from)?;
        // The utilities must not depend on an earlier calibration.
        generator.calibrations.replace(Vec::new());
        files.push((model.role(), file));
    }
    let (questions, count) = (data.named(Question::fingerprint), data.questions.len());
    let stays = "the calibrations of earlier methods are stored";
    let mut following = Following::new(count * methods.len(), stays, "");
    let (mut fitted, mut written, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    let mut fatal: Option<Failure> = None;
    for (at, method) in methods.into_iter().enumerate() {
        let role =
            engine.reranker.scoring_model(&RerankRequest { method: Some(method), ..RerankRequest::default() })?.role();
        let mut answers = Answers::new(method);
        let ask = async |question: &Question| Ok(ranking::ask(&engine, method, &settings, question).await?.into());
        let keep = |entry: Entry<Asked>, _: Timing| {
            entry.value.into_iter().for_each(|asked| answers.add(asked));
            Ok(())
        };
        let mut show = |event: Event<'_>| match event {
            Event::Done(done) => following.show(&Event::Done(at * count + done)),
            Event::Stopped { id, done } => following.show(&Event::Stopped { id, done: at * count + done }),
            other => following.show(&other),
        };
        if let Err(error) = ask_all(&questions, 0, 1, ask, keep, &mut show).await {
            fatal = Some(error.into());
            break;
        }
        if let Some(warning) = answers.without() {
            following.complain(&format!("{}: {warning}", method.name()));
        }
        let (some, failed) = answers.fit();
        // Stored at once, because the next method may take an hour and be interrupted. A calibration belongs to the
        // generator that scored, or to the served generator if another model scored.
        let file = files.iter().find(|(other, _)| *other == role && !some.is_empty());
        let stored = file.map_or(Ok(()), |(_, file)| store(file, &some));
        let name = file.map(|(_, file)| file.path().display().to_string());
        written.extend(name.filter(|name| stored.is_ok() && !written.contains(name)));
        fitted.extend(some);
        problems.extend(failed.iter().map(ToString::to_string));
        if let Err(error) = stored {
            fatal = Some(error);
            break;
        }
    }
    following.finish();
    for problem in &problems {
        output::complain(problem);
    }
    if fitted.is_empty() {
        let none = || Failure::Input("no method could be calibrated".to_owned());
        return Err(fatal.unwrap_or_else(none));
    }
    if args.format.is_json() || args.mixes {
        let lines: Vec<String> = fitted.iter().map(|one| format!("{}\n", line(one, args.mixes))).collect();
        output::print(&lines.concat())?;
    } else {
        output::print(&shared::report(&report(&fitted)))?;
    }
    if !written.is_empty() {
        output::complain(&format!("written: {}", written.join(", ")));
    }
    match (fatal, problems.len()) {
        (Some(error), _) => Err(error),
        (None, 0) => Ok(()),
        (None, failed) => Err(Failure::Other(anyhow::anyhow!("{failed} calibrations could not be fitted"))),
    }
}

/// Replaces the stored calibrations of the same methods.
fn store(file: &CalibrationFile, fitted: &[Fitted]) -> Result<(), Failure> {
    // Read again: another calibration may have ended meanwhile.
    let mut stored = calibrations::kept(file.load())?;
    for one in fitted {
        stored.retain(|other| !one.calibration.replaces(other));
        stored.push(one.calibration.clone());
    }
    Ok(file.save(&stored).map_err(anyhow::Error::from)?)
}

fn line(one: &Fitted, mixes: bool) -> Value {
    let (mut line, worth) = (calibrations::fields(&one.calibration), &one.worth);
    line["unseen"] = json!({
        "ndcg@10": { "built_in_weight": worth.ndcg_before, "learnt_weight": worth.ndcg_after, "taken": worth.mix_taken },
        "calibration_error": { "before": worth.error_before, "after": worth.error_after },
        "outranks_next": worth.order.as_ref().map(|order| json!({
            "calibration_error": { "before": order.error_before, "after": order.error_after }, "pairs": order.pairs,
        })),
        "none_relevant": worth.none_relevant,
        "auto_k": worth.auto_k,
    });
    if mixes {
        let mix = |tried: &TriedMix| {
            let cosines = one.calibration.mix.and_then(|mix| mix.embedding).map(|_| tried.shares.embedding);
            json!({ "fusion_weight": tried.shares.weight, "embedding_weight": cosines, "ndcg@10": tried.ndcg })
        };
        line["mixes"] = one.tried.iter().map(mix).collect();
    }
    line
}

fn report(fitted: &[Fitted]) -> Report {
    let none = || "–".to_owned();
    let number = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.3}"));
    let row = |Fitted { calibration, worth, .. }: &Fitted| {
        let not_taken = if calibration.mix.is_some() && !worth.mix_taken { " (not taken)" } else { "" };
        let order = worth.order.as_ref();
        let order = order.map(|order| format!("{:.3}, {}", order.error_before, number(order.error_after)));
        let absent = worth.none_relevant.as_ref();
        let absent =
            absent.map(|one| format!("{:.3}; {:.2}, {:.2}", one.auc, one.true_positive_rate, one.false_positive_rate));
        let auto = worth.auto_k.as_ref();
        let auto = auto.map(|one| format!("{:.3} ({:.1} results), {:.3}", one.f1, one.results, one.f1_of_one_number));
        vec![
            calibration.method.clone(),
            calibration.fused_with(),
            calibrations::weights(calibration),
            format!("{}, {}{not_taken}", number(worth.ndcg_before), number(worth.ndcg_after)),
            format!("{}, {}", number(worth.error_before), number(worth.error_after)),
            order.unwrap_or_else(none),
            absent.unwrap_or_else(none),
            auto.unwrap_or_else(none),
        ]
    };
    let head = [
        "method",
        "fused with",
        "weight; share of cosines",
        "nDCG@10, built-in, learnt",
        "calibration error, before, after",
        "error of outranks_next, before, after",
        "none_helps: AUC; true and false positives",
        "F1 of auto_k, of a fixed number",
    ];
    let text = [
        "nDCG, error, AUC and F1 are measured on lists that the fit did not see; F1 only on lists with a relevant passage.",
        "nDCG is that of the mixture before any refinement. The other numbers before the fit are of the built-in mixture; those after \
         it are of the learnt one if it is taken.",
        "none_helps should be true for lists without their relevant passages, and false for the same lists with them.",
    ];
    Report {
        title: "Calibrated ranking methods".to_owned(),
        verdict: format!("{} calibrations were fitted.", fitted.len()),
        text: text.map(str::to_owned).to_vec(),
        tables: vec![Table::new("", head, fitted.iter().map(row).collect())],
        ..Report::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::fusion::calibration::Calibration;
    use engine::fusion::platt::Platt;
    use lab::evaluation::ranking::Worth;
    use models::catalog::Catalog;
    use models::fetch::Hub;
    use models::store::Store;

    /// An unreadable file must not lose hours of rankings.
    #[test]
    fn a_damaged_file_does_not_lose_the_calibration() {
        let folder = tempfile::tempdir().unwrap();
        let file = CalibrationFile::new(
            &Store::new(folder.path().to_owned(), Catalog::load(None).unwrap(), Hub::default()),
            "ab",
            "t-1",
        );
        let calibration = Calibration {
            method: "cascade".into(),
            mix: None,
            embedding: None,
            model: None,
            score: Platt { intercept: -1.0, slope: 2.0 },
            lists: 10,
            passages: 100,
            outranks_per_nat: None,
            calibration_error: None,
        };
        let worth = Worth {
            ndcg_before: None,
            ndcg_after: None,
            mix_taken: false,
            error_before: None,
            error_after: None,
            order: None,
            none_relevant: None,
            auto_k: None,
        };
        let fitted = Fitted { calibration, worth, tried: Vec::new() };
        std::fs::create_dir_all(file.path().parent().unwrap()).unwrap();
        std::fs::write(file.path(), "{").unwrap();
        store(&file, std::slice::from_ref(&fitted)).unwrap();
        assert_eq!(file.load().unwrap(), [fitted.calibration]);
        assert!(file.path().with_extension("damaged-1").exists());
    }
}
