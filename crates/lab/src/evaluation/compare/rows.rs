//! Rows of a comparison other than `given` and `bm25`: each method as configured, and its variants.

use super::settings::Settings;
use crate::study::StudyError;
use crate::study::backend::Backend;
use crate::study::identity::ModelIdentity;
use engine::types::MethodRef;
use prefix_scheduler::model::PromptFormat;

/// Suffix of a row with the caller's instruction and examples.
pub(super) const OPENING: &str = "+opening";

/// Suffix of a row that the generator scores instead of the scorer.
pub(super) const GENERATOR: &str = "+generator";

/// How a row asks its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// As the server is configured.
    Configured,
    /// With the caller's instruction and examples.
    Opening,
    /// With another prompt format.
    Framed(PromptFormat),
    /// Scored by the generator, although a scorer is configured.
    Generator,
}

/// A row that asks a method.
#[derive(Debug, Clone, Copy)]
pub(super) struct MethodRow {
    pub method: MethodRef,
    pub variant: Variant,
}

impl MethodRow {
    /// The row's name: the method's name, with a suffix for a variant.
    pub(super) fn name(self) -> String {
        let own = match self.variant {
            Variant::Configured => String::new(),
            Variant::Opening => OPENING.to_owned(),
            Variant::Framed(frame) => format!("+{}", frame.name()),
            Variant::Generator => GENERATOR.to_owned(),
        };
        format!("{}{own}", self.method.name())
    }

    /// The name of the row that asks the same method as configured; `None` for this row.
    pub(super) fn base(self) -> Option<String> {
        (self.variant != Variant::Configured).then(|| self.method.name().to_owned())
    }

    /// The prompt format that its requests ask for.
    pub(super) const fn frame(self) -> Option<PromptFormat> {
        match self.variant {
            Variant::Framed(frame) => Some(frame),
            Variant::Configured | Variant::Opening | Variant::Generator => None,
        }
    }

    /// True if the scorer scores it, if there is one.
    pub(super) fn is_scored_by_scorer(self) -> bool {
        scores(self.method) && self.variant != Variant::Generator
    }

    /// The generator that its requests name as scorer.
    pub(super) const fn scorer(self) -> &'static str {
        match self.variant {
            Variant::Generator => "generator",
            Variant::Configured | Variant::Opening | Variant::Framed(_) => "",
        }
    }
}

/// True if a scorer can score instead of the generator. The generator itself scores its own answer.
fn scores(method: MethodRef) -> bool {
    method.asks_generator() && !method.reads_own_answer()
}

impl Settings {
    /// Refuses a prompt prefix, prompt formats or a budget that no method supports.
    pub fn check(&self) -> Result<(), StudyError> {
        let refused = |problem: &str| Err(StudyError::Input(problem.to_owned()));
        if !self.opening.is_built_in() && !self.rows().any(|row| row.variant == Variant::Opening) {
            return refused("--instruction, --examples: none of the methods takes them");
        }
        if !self.frames.is_empty() && !self.rows().any(|row| row.frame().is_some()) {
            return refused("--frames: none of the methods asks a generator with prompts that have a frame");
        }
        if self.latency_budget_ms.is_some() && !self.rows().any(|row| row.method.takes_latency_budget()) {
            return refused("--latency-budget-ms: none of the methods takes one");
        }
        if self.by_generator && !self.rows().any(|row| row.variant == Variant::Generator) {
            return refused("--by-generator: none of the methods is scored by the scorer");
        }
        Ok(())
    }

    /// Refuses rows of the generator if it scores every row anyway.
    pub(super) fn check_scorer(&self, models: &ModelIdentity) -> Result<(), StudyError> {
        if self.by_generator && models.scorer.is_none() {
            let problem = "--by-generator: no scorer is configured (scorer.model): the generator scores every row";
            return Err(StudyError::Input(problem.to_owned()));
        }
        Ok(())
    }

    /// Refuses prompt formats that cannot be compared, before any question: if two models have prompts, if the model
    /// lacks a format, or if only the configured format is named.
    pub(super) fn check_frames(&self, models: &ModelIdentity, backend: &Backend) -> Result<(), StudyError> {
        let refused = |problem: &str| Err(StudyError::Input(format!("--frames: {problem}")));
        if self.frames.is_empty() {
            return Ok(());
        }
        if models.scorer.is_some() {
            return refused(
                "compares the frames of one generator: name the scorer's file as generator.model, and no scorer.model",
            );
        }
        for frame in &self.frames {
            if let Err(problem) = backend.try_frame(*frame) {
                return refused(&problem.to_string());
            }
        }
        if self.frames == [models.frame] {
            let own = models.frame.name();
            return refused(&format!("{own} is the configured frame, that of the rows without +{own}: name another"));
        }
        Ok(())
    }

    /// These settings for the models, without the configured format, because the methods' own rows have it.
    ///
    /// # Errors
    /// As [`Settings::check`].
    pub(super) fn of_models(&self, models: &ModelIdentity) -> Result<Self, StudyError> {
        let frames = self.frames.iter().copied().filter(|frame| *frame != models.frame).collect();
        let settings = Self { frames, reranker: Some(models.scores_as_reranker), ..self.clone() };
        settings.check().map(|()| settings)
    }

    /// The rows that ask methods.
    pub(super) fn rows(&self) -> impl Iterator<Item = MethodRow> + '_ {
        let instructed = self.opening.examples.is_empty() && self.reranker != Some(false);
        self.methods.iter().flat_map(move |method| {
            // A reranker has its own prompt, which takes an instruction but no chat template.
            let own = method.knows_rerankers();
            let takes = method.takes_prefix() || (own && instructed);
            let opening = (!self.opening.is_built_in() && takes).then_some(Variant::Opening);
            let framed = method.asks_generator() && method.has_frame() && !(own && self.reranker == Some(true));
            let frames = self.frames.iter().filter(move |_| framed).map(|frame| Variant::Framed(*frame));
            let scored = self.by_generator && scores(*method);
            let variants = std::iter::once(Variant::Configured).chain(opening).chain(frames);
            let variants = variants.chain(scored.then_some(Variant::Generator));
            variants.map(|variant| MethodRow { method: *method, variant })
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::settings::tests::settings;
    use super::*;
    use engine::types::PromptPrefix;

    #[test]
    fn formats_have_separate_rows() {
        let framed =
            |method: &str| Settings { frames: vec![PromptFormat::Jinja, PromptFormat::Plain], ..settings(method) };
        let names: Vec<String> = framed("moi").rows().map(MethodRow::name).collect();
        assert_eq!(names, ["moi", "moi+jinja", "moi+plain"]);
        assert_eq!(framed("moi").manifest(&ModelIdentity::scripted(""))["frames"], json!(["jinja", "plain"]));
        assert!(framed("moi").check().is_ok() && settings("retriever").check().is_ok());
        let refused = framed("retriever").check().unwrap_err().to_string();
        assert!(refused.contains("--frames: none of the methods"), "{refused}");
        assert!(framed("long-llm-lingua").check().is_err(), "its prompt has no frame");
        let frames = |frame| {
            let models = ModelIdentity { frame, ..ModelIdentity::scripted("") };
            framed("moi").of_models(&models).unwrap().frames
        };
        assert_eq!((frames(PromptFormat::Plain), frames(PromptFormat::Chat).len()), (vec![PromptFormat::Jinja], 2));
    }

    /// A page must not state a budget that no row had.
    #[test]
    fn a_budget_that_no_method_takes_is_refused() {
        let of = |method| Settings { latency_budget_ms: Some(100.0), ..settings(method) };
        assert!(of("cascade").check().is_ok());
        let refused = of("embedding").check().unwrap_err().to_string();
        assert!(refused.contains("--latency-budget-ms: none of the methods"), "{refused}");
    }

    #[test]
    fn a_rerankers_own_prompt_takes_an_instruction_and_no_format() {
        let opening = PromptPrefix { instruction: "Find code.".into(), ..PromptPrefix::default() };
        let asked = Settings { opening, frames: vec![PromptFormat::Plain], ..settings("yes-no") };
        let of = |scores_as_reranker| {
            let models = ModelIdentity { scores_as_reranker, ..ModelIdentity::scripted("") };
            asked.of_models(&models).map(|settings| settings.rows().map(MethodRow::name).collect::<Vec<_>>())
        };
        assert!(asked.check().is_ok(), "the kind of model is not known yet");
        assert!(of(true).unwrap_err().to_string().contains("--frames: none of the methods"));
        assert!(of(false).unwrap_err().to_string().contains("--instruction, --examples: none of the methods"));
        let instructed = Settings { frames: Vec::new(), reranker: Some(true), ..asked.clone() };
        assert_eq!(instructed.rows().map(MethodRow::name).collect::<Vec<_>>(), ["yes-no", "yes-no+opening"]);
        let framed = Settings { opening: PromptPrefix::default(), reranker: Some(false), ..asked };
        assert_eq!(framed.rows().map(MethodRow::name).collect::<Vec<_>>(), ["yes-no", "yes-no+plain"]);
    }

    #[test]
    fn the_generator_and_the_scorer_have_separate_rows() {
        let asked = |method: &str| Settings { by_generator: true, ..settings(method) };
        let rows: Vec<MethodRow> = asked("moi").rows().collect();
        let shown: Vec<_> = rows.iter().map(|row| (row.name(), row.base(), row.scorer())).collect();
        let own = ("moi".to_owned(), None, "");
        assert_eq!(shown, [own, ("moi+generator".to_owned(), Some("moi".to_owned()), "generator")]);
        // These need no scorer: they use another model, none, or the generator itself.
        for method in ["embedding", "retriever", "leave-one-out"] {
            let refused = asked(method).check().unwrap_err().to_string();
            assert!(refused.contains("--by-generator: none of the methods"), "{refused}");
        }
        let models =
            |scorer: Option<&str>| ModelIdentity { scorer: scorer.map(str::to_owned), ..ModelIdentity::scripted("") };
        assert!(asked("moi").check_scorer(&models(None)).unwrap_err().to_string().contains("no scorer is configured"));
        assert!(asked("moi").check_scorer(&models(Some("a scorer"))).is_ok());
        let manifest = |settings: Settings| settings.manifest(&models(Some("a scorer")))["by_generator"].clone();
        assert_eq!((manifest(asked("moi")), manifest(settings("moi"))), (json!(true), json!(false)));
    }
}
