//! Which rows a comparison has beside `given` and `bm25`: each method as configured, and the same asked in another way.

use super::Settings;
use crate::study::StudyError;
use crate::study::backend::Backend;
use crate::study::identity::ModelIdentity;
use engine::methods::MethodRef;
use engine::prompt::Frame;

/// What follows the method in the name of a row whose requests have the caller's instruction and examples.
pub(super) const OPENING: &str = "+opening";

/// What follows it in the name of a row that the generator scores in the place of the scorer.
pub(super) const GENERATOR: &str = "+generator";

/// How a row asks its method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// As the server is configured.
    Configured,
    /// With the caller's opening.
    Opening,
    /// With prompts in another frame.
    Framed(Frame),
    /// Scored by the generator, where a scorer is configured.
    Generator,
}

/// A row that asks a method.
#[derive(Debug, Clone, Copy)]
pub(super) struct MethodRow {
    pub method: MethodRef,
    pub variant: Variant,
}

impl MethodRow {
    /// The row's name: that of the method, with a suffix where it is asked in another way.
    pub(super) fn name(self) -> String {
        let own = match self.variant {
            Variant::Configured => String::new(),
            Variant::Opening => OPENING.to_owned(),
            Variant::Framed(frame) => format!("+{}", frame.name()),
            Variant::Generator => GENERATOR.to_owned(),
        };
        format!("{}{own}", self.method.name())
    }

    /// The name of the row that asks the same method as configured; `None` for that row itself.
    pub(super) fn base(self) -> Option<String> {
        (self.variant != Variant::Configured).then(|| self.method.name().to_owned())
    }

    /// The frame that its requests ask for.
    pub(super) const fn frame(self) -> Option<Frame> {
        match self.variant {
            Variant::Framed(frame) => Some(frame),
            Variant::Configured | Variant::Opening | Variant::Generator => None,
        }
    }

    /// Whether the scorer scores it, where there is one.
    pub(super) fn is_scored_by_scorer(self) -> bool {
        scores(self.method) && self.variant != Variant::Generator
    }

    /// Which generator its requests name as their scorer.
    pub(super) const fn scorer(self) -> &'static str {
        match self.variant {
            Variant::Generator => "generator",
            Variant::Configured | Variant::Opening | Variant::Framed(_) => "",
        }
    }
}

/// Whether a scorer can score in the generator's place: what is said of the generator's own answer is said by the generator.
fn scores(method: MethodRef) -> bool {
    method.asks_generator() && !method.reads_own_answer()
}

impl Settings {
    /// Refuses an opening, frames or a budget that no method takes.
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

    /// Refuses rows of the generator where it scores in any case.
    pub(super) fn check_scorer(&self, models: &ModelIdentity) -> Result<(), StudyError> {
        if self.by_generator && models.scorer.is_none() {
            let problem = "--by-generator: no scorer is configured (scorer.model): the generator scores every row";
            return Err(StudyError::Input(problem.to_owned()));
        }
        Ok(())
    }

    /// Refuses frames that cannot be compared, before any question: where two models have prompts, where the model has no such
    /// frame, and where the configured one is the only one, because nothing is left to compare with it.
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

    /// The same for these models, without the configured frame: its rows are those of the methods themselves.
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
            // A reranker's own prompt takes an instruction and has no frame.
            let own = method.knows_rerankers();
            let takes = method.takes_opening() || (own && instructed);
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

    use super::super::tests::settings;
    use super::*;
    use engine::opening::Opening;

    #[test]
    fn frames_have_rows_of_their_own() {
        let framed = |method: &str| Settings { frames: vec![Frame::Jinja, Frame::Plain], ..settings(method) };
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
        assert_eq!((frames(Frame::Plain), frames(Frame::Chat).len()), (vec![Frame::Jinja], 2));
    }

    /// The page said that all rows had kept to it.
    #[test]
    fn a_budget_that_no_method_takes_is_refused() {
        let of = |method| Settings { latency_budget_ms: Some(100.0), ..settings(method) };
        assert!(of("cascade").check().is_ok());
        let refused = of("embedding").check().unwrap_err().to_string();
        assert!(refused.contains("--latency-budget-ms: none of the methods"), "{refused}");
    }

    #[test]
    fn a_rerankers_own_prompt_takes_an_instruction_and_has_no_frame() {
        let opening = Opening { instruction: "Find code.".into(), ..Opening::default() };
        let asked = Settings { opening, frames: vec![Frame::Plain], ..settings("yes-no") };
        let of = |scores_as_reranker| {
            let models = ModelIdentity { scores_as_reranker, ..ModelIdentity::scripted("") };
            asked.of_models(&models).map(|settings| settings.rows().map(MethodRow::name).collect::<Vec<_>>())
        };
        assert!(asked.check().is_ok(), "which it is is not known yet");
        assert!(of(true).unwrap_err().to_string().contains("--frames: none of the methods"));
        assert!(of(false).unwrap_err().to_string().contains("--instruction, --examples: none of the methods"));
        let instructed = Settings { frames: Vec::new(), reranker: Some(true), ..asked.clone() };
        assert_eq!(instructed.rows().map(MethodRow::name).collect::<Vec<_>>(), ["yes-no", "yes-no+opening"]);
        let framed = Settings { opening: Opening::default(), reranker: Some(false), ..asked };
        assert_eq!(framed.rows().map(MethodRow::name).collect::<Vec<_>>(), ["yes-no", "yes-no+plain"]);
    }

    #[test]
    fn rows_of_the_generator_stand_beside_those_of_a_scorer() {
        let asked = |method: &str| Settings { by_generator: true, ..settings(method) };
        let rows: Vec<MethodRow> = asked("moi").rows().collect();
        let told: Vec<_> = rows.iter().map(|row| (row.name(), row.base(), row.scorer())).collect();
        let own = ("moi".to_owned(), None, "");
        assert_eq!(told, [own, ("moi+generator".to_owned(), Some("moi".to_owned()), "generator")]);
        // These ask no scorer: another model, none, or the generator itself.
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
