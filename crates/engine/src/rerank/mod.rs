//! Reranking.
//!
//! [`Reranker`] checks a request, chooses the generator that scores (`scorer`) and has a `Driver` run the method of
//! [`crate::methods`]. The driver also asks rerankers and embedding models (`passages`) and the entailment model
//! (`verdicts`). `mixing` fuses the scores with the retriever's, and `place` turns them into results. Two steps may
//! follow: `compress` shortens the returned passages, `inline` measures their utility. Both reserve their share of
//! the budget (`budget`) before the ranking.

mod blanks;
mod budget;
mod check;
mod compress;
mod compressor;
mod copies;
mod cost;
mod dedup;
mod driver;
mod inline;
mod mixing;
mod pairs;
mod passages;
mod pending;
mod place;
mod quota;
mod scorer;
mod single_passage;
mod verdicts;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

pub use blanks::places_of;
pub(crate) use blanks::{Blanks, RANKED_LAST};
use budget::Reserved;
pub(crate) use check::check_request;
use check::repeated_id;
pub(crate) use compress::ALL_DROPPED;
use compressor::Compressor;
pub use copies::Copies;
use driver::{Driven, Driver};
use mixing::{is_unread, mix, mixes, not_calibrated};
pub use passages::RANKED_WITHOUT;
use passages::scores_sha256;
pub(crate) use place::arrange;
use place::place;
use quota::Quota;
use scorer::{Admission, model_name, reading_model, scoring_model};
use single_passage::SinglePassageScores;

use crate::calibrations::{Applicable, WITHOUT_EMBEDDING};
use crate::estimate::Admitted;
use crate::fusion::calibration::Calibration;
use crate::live::LiveMeter;
use crate::methods::Scored;
use crate::models::{GeneratorModel, Models, ServedGenerator};
use crate::types::{
    EngineError, Limits, MethodRef, Passage, RerankEvent, RerankRequest, Reranked, Role, Usage, milliseconds,
};
use crate::utility::UtilityMeter;
use prefix_scheduler::call::{Call, Place};
use prefix_scheduler::plan::Cost;

/// Ranks passages.
#[derive(Debug, Clone)]
pub struct Reranker {
    models: Models,
    limits: Limits,
    utility: UtilityMeter,
    live: LiveMeter,
}

/// A ranking with its models.
struct Job<'a> {
    /// The request, with each document once.
    request: RerankRequest,
    /// The passages of each document.
    copies: Copies,
    /// Reads the final context.
    generator: Arc<ServedGenerator>,
    /// Scores the passages.
    scoring: &'a GeneratorModel,
    scorer: Arc<ServedGenerator>,
    /// Reads passages for the compression.
    reading: &'a GeneratorModel,
    reader: Arc<ServedGenerator>,
    calibrations: Applicable,
    /// Why no calibration applies.
    passed_over: Option<String>,
}

/// A ranking, and what its method learnt.
struct Ranked {
    answer: Reranked,
    single: SinglePassageScores,
    /// The part of the answer's tokens that a reranker or an embedding model evaluated.
    other_tokens: usize,
}

impl Reranker {
    pub(crate) fn new(utility: UtilityMeter, live: LiveMeter) -> Self {
        let sampler = &utility.sampler;
        Self { models: sampler.models.clone(), limits: sampler.limits, utility, live }
    }

    /// Reranks the passages of one query. The work ends when the call stops.
    ///
    /// # Errors
    /// [`EngineError`], which names the field at fault. Invalid requests are refused before any work.
    pub async fn rerank(
        &self,
        call: &Call,
        request: RerankRequest,
        listener: Option<UnboundedSender<RerankEvent>>,
    ) -> Result<Reranked, EngineError> {
        let selected = self.live.select(&request);
        let answer = self.rerank_within(call, request, listener, Quota::default()).await?;
        if let Some(selected) = selected {
            self.live.offer(selected, &answer);
        }
        Ok(answer)
    }

    /// Refuses a request that [`Reranker::rerank`] would refuse without a model. For requests that must wait for a
    /// slot.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check(&self, request: &RerankRequest) -> Result<(), EngineError> {
        check_request(request, &self.limits)?;
        self.scoring_model(request).map(drop)
    }

    /// True if passages may be cut to fit.
    pub(crate) fn truncates(&self, request: &RerankRequest) -> bool {
        request.truncate.unwrap_or(self.limits.truncate)
    }

    /// The kind of model that works on a request.
    #[must_use]
    pub fn place_of(&self, request: &RerankRequest) -> Place {
        let asks = request.method().asks_generator() || request.inline.is_some() || request.compression_reads();
        if asks { Place::Generator } else { Place::Beside }
    }

    /// The generator that scores the passages of a request: the named one, or the scorer if one is configured. A method that reads
    /// the generator's own answer asks the answering generator.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for `scorer` if no generator has this name, or the named scorer would have nothing to do.
    pub fn scoring_model(&self, request: &RerankRequest) -> Result<&GeneratorModel, EngineError> {
        scoring_model(&self.models, request)
    }

    /// Name of the model that a method asks in a request without a scorer; `None` for a method that asks none.
    #[must_use]
    pub fn model_of(&self, method: MethodRef) -> Option<String> {
        self.model_of_request(&RerankRequest { method: Some(method), ..RerankRequest::default() })
    }

    /// Name of the model that a request's method asks; `None` for a method that asks none.
    #[must_use]
    pub fn model_of_request(&self, request: &RerankRequest) -> Option<String> {
        model_name(&self.models, request)
    }

    /// Computes the cost of the first round of prompts. Evaluates nothing.
    ///
    /// # Errors
    /// As [`Reranker::rerank`] before any work.
    pub async fn cost(&self, call: &Call, mut request: RerankRequest) -> Result<Cost, EngineError> {
        check_request(&request, &self.limits)?;
        request.tidy();
        let blanks = Blanks::take(&mut request.passages, Passage::is_blank);
        if request.passages.is_empty() {
            return Ok(Cost::default());
        }
        let copies = Copies::of(&request);
        let request = copies.without(&request);
        let scorer = self.scoring_model(&request)?.get()?;
        let mut driver = Driver::new(call, &self.models, self.limits, &request, &scorer, copies);
        driver.first_round(request).await.map_err(|error| blanks.named(error))
    }

    /// [`Reranker::rerank`] for one of several lists whose tokens count together. Passages without text come last.
    async fn rerank_within(
        &self,
        call: &Call,
        mut request: RerankRequest,
        listener: Option<UnboundedSender<RerankEvent>>,
        quota: Quota,
    ) -> Result<Reranked, EngineError> {
        call.tally().add_passages(request.passages.len());
        check_request(&request, &self.limits)?;
        let repeated = repeated_id(&request.passages);
        request.tidy();
        let (blanks, most) = (Blanks::take(&mut request.passages, Passage::is_blank), Blanks::most(&request));
        let mut ranked = if blanks.places().is_empty() {
            Box::pin(self.answer(call, request, listener, quota)).await?
        } else {
            let work = async |listener| {
                if request.passages.is_empty() {
                    self.rerank_nothing(call, &request)
                } else {
                    Box::pin(self.answer(call, request, listener, quota)).await
                }
            };
            let mut ranked = blanks.told(listener, work).await.map_err(|error| blanks.named(error))?;
            blanks.put_back(most, &mut ranked);
            ranked
        };
        ranked.warnings.extend(repeated);
        Ok(ranked)
    }

    /// The answer for a list without any text. No model is asked.
    fn rerank_nothing(&self, call: &Call, request: &RerankRequest) -> Result<Reranked, EngineError> {
        let (generator, scoring) = (self.models.answering()?, self.scoring_model(request)?);
        let model = self.model_of_request(request).unwrap_or_default();
        call.tally().set_subject(request.method().name(), &model);
        let mut warnings = Vec::new();
        if request.inline.is_some() || request.compression.is_some() {
            warnings.push("utility and compression had no effect: there is no text".to_owned());
        }
        Ok(Reranked {
            passages: Vec::new(),
            unit: 1.0,
            score_calibrated: false,
            fit: None,
            fusion: None,
            none_helps: Some(true),
            none_relevant: None,
            arrangement: generator.position_bias.arrange(&[], request.context_order)?,
            inline: None,
            compression: None,
            usage: Usage::default(),
            warnings,
            model: scoring.get()?.info.clone(),
        })
    }

    /// Ranks passages with text, then compresses them and measures their utility if requested.
    async fn answer(
        &self,
        call: &Call,
        request: RerankRequest,
        listener: Option<UnboundedSender<RerankEvent>>,
        quota: Quota,
    ) -> Result<Reranked, EngineError> {
        let started = Instant::now();
        let copies = Copies::of(&request);
        let documents = if copies.any() { copies.without(&request) } else { request.clone() };
        let job = self.prepare(call, documents, copies).await?;
        let admission = Admission { models: &self.models, limits: &self.limits };
        let admitted = admission.admit(call, job.reading, &job.request)?;
        // Results, compression and utility cover all passages of the request, including copies.
        let compressor = compress::compressor(call, self.limits, &job.reader, &request).await?;
        let mut reserved = inline::reserve(&self.utility, call, job.reading, &request).await?;
        reserved.tokens += compressor.as_ref().map_or(0, Compressor::cost);
        let wanted = compressor.as_ref().and_then(|compressor| compressor.wanted.clone());
        let single = SinglePassageScores::wanting(wanted);
        let Ranked { mut answer, single, other_tokens } =
            self.rank(call, &job, reserved, single, listener, quota.clone()).await?;
        // Compression comes first: the utility releases the generator while the entailment model judges.
        compress::compress(call, compressor, (&request, single), &mut answer).await?;
        let before = answer.usage.tokens;
        if !answer.passages.is_empty() {
            inline::measure_inline(&self.utility, call, &request, &mut answer, &quota).await?;
        }
        let measured = if job.reading.role() == Role::Scorer { answer.usage.tokens - before } else { 0 };
        Self::learn_cost(&job.request, admitted, &answer, other_tokens + measured);
        answer.usage.total_ms = milliseconds(started);
        Ok(answer)
    }

    /// Chooses the models and the calibrations of a ranking, and takes a slot.
    async fn prepare(&self, call: &Call, mut request: RerankRequest, copies: Copies) -> Result<Job<'_>, EngineError> {
        let models = &self.models;
        if let Some(role) = request.method().passage_model() {
            models.scorer(role)?;
        }
        if request.method().asks_judge() {
            models.judge()?.load(call).await?;
        }
        let (generator, scoring) = (models.answering()?, self.scoring_model(&request)?);
        let scorer = scoring.get()?.with_frame(request.frame)?;
        let reading = reading_model(models, &request, scoring)?;
        let reader = if std::ptr::eq(reading, scoring) {
            Arc::clone(&scorer)
        } else {
            reading.get()?.with_frame(request.frame)?
        };
        let place = self.place_of(&request);
        call.move_to(place).map_err(|_| models.queue_full_at(place))?;
        let model = self.model_of_request(&request).unwrap_or_default();
        call.tally().set_subject(request.method().name(), &model);
        let sha256 = scores_sha256(models, &request);
        let calibrations = scorer.calibrations.of(&request, sha256.as_deref());
        let passed_over = calibrations.passed_over(&request);
        let calibrations = if passed_over.is_some() { Applicable::default() } else { calibrations };
        // A single passage mixes in no cosines, so a calibration with an embedding model does not apply to it. A
        // warning says so.
        let lone = request.passages.len() == 1
            && models.scorer_if_any(Role::Embedding).is_some()
            && scorer.calibrations.only_with_embedding(&request);
        if request.auto_k && calibrations.is_empty() && !lone {
            return Err(not_calibrated(&request, || scorer.calibrations.why_none(&request, sha256.as_deref())));
        }
        request.fusion.learnt = calibrations.learnt();
        generator.position_bias.check(request.context_order)?;
        Ok(Job { request, copies, generator, scoring, scorer, reading, reader, calibrations, passed_over })
    }

    /// Runs the method and turns its scores into results.
    async fn rank(
        &self,
        call: &Call,
        job: &Job<'_>,
        reserved: Reserved,
        single: SinglePassageScores,
        listener: Option<UnboundedSender<RerankEvent>>,
        quota: Quota,
    ) -> Result<Ranked, EngineError> {
        let request = &job.request;
        let mut driver = Driver::new(call, &self.models, self.limits, request, &job.reader, job.copies.clone());
        (driver.reserved, driver.single, driver.listener, driver.quota) = (reserved, single, listener, quota);
        let Driven { mut scored, cut } = driver.drive(request.clone()).await?;
        let (usage, single) = (driver.usage, driver.single);
        job.learn_position_bias(call, &scored);
        let calibration = job.calibration(&mut scored).cloned();
        if mixes(request, &scored) {
            let request = request.clone();
            scored = call.compute(move |_: &Call| Ok::<_, EngineError>(mix(&request, scored))).await?;
        }
        let driven = Driven { scored, cut };
        let (generator, scorer) = (Arc::clone(&job.generator), Arc::clone(&job.scorer));
        let answer = if request.auto_k || request.dedup.is_some() {
            // The sums over a long list, and the words of its texts, take milliseconds.
            let (request, copies) = (request.clone(), job.copies.clone());
            let work = move |call: &Call| {
                place(call, (&generator, &scorer), &request, calibration.as_ref(), driven, (usage, &copies))
            };
            call.compute(work).await?
        } else {
            place(call, (&generator, &scorer), request, calibration.as_ref(), driven, (usage, &job.copies))?
        };
        let other_tokens = if request.method().passage_model().is_some() { usage.tokens } else { 0 };
        Ok(Ranked { answer, single, other_tokens })
    }

    /// Learns the cost of requests of this kind, unless the request was bounded or its later steps had no work. A
    /// request without its optional round counts: under load, the next ones cost as little. The generator that admitted
    /// it did not evaluate `other_tokens` of the answer.
    fn learn_cost(request: &RerankRequest, admitted: Option<Admitted>, answer: &Reranked, other_tokens: usize) {
        let idle = request.inline.is_some() && answer.inline.is_none() || answer.has_idle_compression(request);
        let Some(admitted) = admitted.filter(|_| !idle && !request.was_bounded(answer.usage.tokens)) else { return };
        admitted.learn(answer.usage.tokens - other_tokens);
    }
}

impl Job<'_> {
    /// Adds the position bias of a fit to the generator's profile.
    fn learn_position_bias(&self, call: &Call, scored: &Scored) {
        let Some(fit) = &scored.fit else { return };
        call.tally().set_fit(fit.diagnostics.status());
        let built_in = self.request.moi.is_plain() && self.request.prefix.is_built_in();
        // The first passages of a cascade, which it could not tell apart, are not a fair sample of a list.
        let whole = scored.stages.is_empty();
        // Contexts are arranged for the answering generator. A scorer's fits are no evidence about it.
        if built_in && whole && self.scoring.role() == Role::Generator && self.scorer.position_bias.learn(fit) {
            // Saving runs in the background, so that a slow or full disk does not delay or fail the request.
            let bias = Arc::clone(&self.scorer.position_bias);
            tokio::task::spawn_blocking(move || bias.save_unless_busy());
        }
    }

    /// The calibration that applies to these scores. Warns if one exists but does not apply.
    fn calibration(&self, scored: &mut Scored) -> Option<&Calibration> {
        let mixed = scored.fusion.is_some_and(|fusion| fusion.embedding.is_some());
        let (alone, mix) = (&self.calibrations.alone, &self.calibrations.with_embedding);
        let unread = is_unread(&self.request, scored);
        if !unread && mixed && mix.is_none() && alone.is_some() {
            scored.warnings.push(WITHOUT_EMBEDDING.to_owned());
        }
        scored.warnings.extend(self.passed_over.clone());
        (if mixed { mix } else { alone }).as_ref().filter(|_| !unread)
    }
}
