//! Reranking: `check` refuses invalid requests, `scorer` says which generator scores, `driver` runs the method (`super::methods`),
//! `passages` asks the models beside the generator, `verdicts` the entailment model, `inline` measures utility and `compress`
//! (`compressor`) shortens what is returned, by log-probabilities that the ranking read beside its own where it can (`alone`).
//! `place` mixes, scores, cuts and arranges; `results` is what comes out. `pairs` scores pairs with queries of their own, `quota` bounds lists together, and
//! `cost` says what a request would take. `copies` has documents of equal text ranked once.

mod alone;
mod blanks;
mod check;
mod compress;
mod compressor;
mod copies;
mod cost;
mod driver;
mod inline;
mod pairs;
mod passages;
mod pending;
mod place;
mod quota;
mod results;
mod scorer;
mod usage;
mod verdicts;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

pub use super::methods::moi::{MoiOptions, Outcome, Scheme};
use alone::Alone;
pub(crate) use blanks::Blanks;
pub use blanks::places_of;
pub use compress::{CompressedPassage, Compression, CompressionReport};
use compressor::Compressor;
pub use copies::Copies;
use driver::{Driven, Driver};
pub use inline::{Inline, InlineReport};
pub use pairs::{Pair, PairScore, PairScores};
pub use passages::RANKED_WITHOUT;
use quota::Quota;
pub use results::{FitReport, Ranked, RerankEvent, Reranked};
pub use usage::Usage;

use super::calibrations::{Applicable, WITHOUT_EMBEDDING};
use super::fusing::FusionOptions;
use super::methods::MethodRef;
use super::models::{Role, ServedGenerator};
use super::opening::Opening;
use super::position_bias::ContextOrder;
use super::prompt::{CutSide, Frame};
use super::{Engine, EngineError};
use prefix_scheduler::call::{Call, Place};

/// A passage to be ranked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Passage {
    /// Identifier that the caller chooses; unique in the request.
    pub id: String,
    /// Title, set before the text in prompts; may be empty.
    pub title: String,
    /// Text. A passage without one is read as its title; without both, it comes last.
    pub text: String,
    /// Score of the retriever; finite. Higher is better.
    pub retriever_score: Option<f64>,
}

impl Passage {
    /// Title and text as one, for measures that read words.
    #[must_use]
    pub fn whole_text(&self) -> String {
        format!("{} {}", self.title, self.text)
    }

    /// If there is nothing to read.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        [&self.title, &self.text].iter().all(|text| unmarked(text).trim().is_empty())
    }

    /// Drops byte-order marks at the beginning, and makes a title without text the text.
    fn tidy(&mut self) {
        let (title, text) = read_as(&self.title, &self.text);
        (self.title, self.text) = (title.to_owned(), text.to_owned());
    }
}

/// A text without the byte-order mark that some programs write before it.
pub(crate) fn unmarked(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// Title and text as they are read: a title without text is the text.
pub(crate) fn read_as<'a>(title: &'a str, text: &'a str) -> (&'a str, &'a str) {
    let (title, text) = (unmarked(title), unmarked(text));
    if text.trim().is_empty() { ("", title) } else { (title, text) }
}

/// A query, the passages to rerank, and options.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RerankRequest {
    /// The query; not empty.
    pub query: String,
    /// The passages in the retriever's order.
    pub passages: Vec<Passage>,
    /// Method that scores the passages; `None` for the default ([`RerankRequest::method`]).
    pub method: Option<MethodRef>,
    /// The generator that scores: `generator`, `scorer`, or the scorer's name; empty for the scorer where one is configured.
    pub scorer: String,
    /// Options of the MOI method. Its token budget applies to every method.
    pub moi: MoiOptions,
    /// Fusion with the retriever's scores.
    pub fusion: FusionOptions,
    /// Omit results that are no better than no passage (utility of 0 or less). Then an empty list of results is an answer.
    pub only_helpful: bool,
    /// Milliseconds that scoring should take at the generator's measured speed. Bounds the tokens as a budget does.
    pub latency_budget_ms: Option<f64>,
    /// Most results to return, best first; `None` returns all.
    pub top_n: Option<usize>,
    /// Results with a lower score are omitted; in [0, 1].
    pub score_threshold: Option<f64>,
    /// Return as many results as have the greatest expected F1 by their probabilities. The method must be calibrated.
    pub auto_k: bool,
    /// Whether passages may be truncated to fit the context; `None` selects the configured default.
    pub truncate: Option<bool>,
    /// Most tokens per passage; if `None`, only the context bounds them.
    pub passage_tokens: Option<usize>,
    /// The side at which passages are truncated. Set by the peers' protocols; rerankd.v1 cuts at the end.
    pub cut_side: CutSide,
    /// Order of the returned passages in the generator's context.
    pub context_order: ContextOrder,
    /// Utility to measure in addition to the ranking; `None` measures nothing.
    pub inline: Option<Inline>,
    /// Instruction and examples before the passages, for methods that take them.
    pub opening: Opening,
    /// The frame of the prompts that score; `None` for the configured one. No protocol has it: it is for comparisons.
    pub frame: Option<Frame>,
    /// Compression of the returned passages; `None` leaves them as they are.
    pub compression: Option<Compression>,
}

impl Passage {
    /// A passage without title and retriever's score, whose id is its index in the request.
    #[must_use]
    pub fn untitled(index: usize, text: String) -> Self {
        Self { id: index.to_string(), text, ..Self::default() }
    }
}

impl RerankRequest {
    /// Drops byte-order marks, and makes titles without text the texts.
    fn tidy(&mut self) {
        self.query = unmarked(&self.query).to_owned();
        self.passages.iter_mut().for_each(Passage::tidy);
    }

    /// The method that ranks: the named one, `moi` where none is named and options are set that only `moi` has, or the default.
    #[must_use]
    pub fn method(&self) -> MethodRef {
        self.method.unwrap_or_else(|| super::methods::unnamed(&self.moi))
    }
}

impl Engine {
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
        self.rerank_within(call, request, listener, Quota::default()).await
    }

    /// Refuses a request that [`Engine::rerank`] would refuse without a model. For one that has to wait for its permit.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check_rerank(&self, request: &RerankRequest) -> Result<(), EngineError> {
        check::check(request, self.limits())?;
        self.scoring_model(request).map(drop)
    }

    /// What a request works with: the generator, or what is beside it.
    #[must_use]
    pub fn place_of(&self, request: &RerankRequest) -> Place {
        let asks = request.method().asks_generator() || request.inline.is_some() || request.compression_reads();
        if asks { Place::Generator } else { Place::Beside }
    }

    /// [`Engine::rerank`] for one of several lists, whose tokens count together. Passages without text are put behind the others.
    async fn rerank_within(
        &self,
        call: &Call,
        mut request: RerankRequest,
        listener: Option<UnboundedSender<RerankEvent>>,
        quota: Quota,
    ) -> Result<Reranked, EngineError> {
        call.tally().add_passages(request.passages.len());
        check::check(&request, self.limits())?;
        let repeated = check::repeated_id(&request.passages);
        request.tidy();
        let (blanks, most) = (Blanks::take(&mut request.passages, Passage::is_blank), Blanks::most(&request));
        let mut ranked = if blanks.places().is_empty() {
            Box::pin(self.rerank_read(call, request, listener, quota)).await?
        } else {
            let work = async |listener| {
                if request.passages.is_empty() {
                    self.rerank_nothing(call, &request)
                } else {
                    Box::pin(self.rerank_read(call, request, listener, quota)).await
                }
            };
            let mut ranked = blanks.told(listener, work).await.map_err(|error| blanks.named(error))?;
            blanks.put_back(most, &mut ranked);
            ranked
        };
        ranked.warnings.extend(repeated);
        Ok(ranked)
    }

    /// The answer for a list in which no passage has a text. No model is asked.
    fn rerank_nothing(&self, call: &Call, request: &RerankRequest) -> Result<Reranked, EngineError> {
        let (generator, scoring) = (self.generator()?, self.scoring_model(request)?);
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

    /// [`Engine::rerank_within`] for passages that all have a text.
    async fn rerank_read(
        &self,
        call: &Call,
        mut request: RerankRequest,
        listener: Option<UnboundedSender<RerankEvent>>,
        quota: Quota,
    ) -> Result<Reranked, EngineError> {
        let started = Instant::now();
        let copies = Copies::of(&request);
        // Results, compression and utility are about all passages of the request, copies included.
        let given = copies.any().then(|| request.clone());
        if copies.any() {
            request = copies.without(&request);
        }
        if let Some(role) = request.method().beside() {
            self.models().scorer(role)?;
        }
        if request.method().asks_judge() {
            self.models().judge()?.load(call).await?;
        }
        // The generator reads what is arranged here; the scorer may be another model.
        let (generator, scoring) = (self.generator()?, self.scoring_model(&request)?);
        let scorer = scoring.get()?.with_frame(request.frame)?;
        // What is compressed is read by what scores, also where another model or none ranks.
        let reading = self.reading_model(&request, scoring)?;
        let reader = if std::ptr::eq(reading, scoring) {
            Arc::clone(&scorer)
        } else {
            reading.get()?.with_frame(request.frame)?
        };
        let place = self.place_of(&request);
        call.move_to(place).map_err(|_| self.queue_full_at(place))?;
        let model = self.model_of_request(&request).unwrap_or_default();
        call.tally().set_subject(request.method().name(), &model);
        let sha256 = self.beside_sha256(&request);
        let calibrations = scorer.calibrations.of(&request, sha256.as_deref());
        let passed_over = calibrations.passed_over(&request);
        let calibrations = if passed_over.is_some() { Applicable::default() } else { calibrations };
        // Whether the embedding model can be asked is known later. Where it matters and its calibration is missing, a warning says so.
        // So it does for one passage, which has no cosines to mix in.
        let lone = request.passages.len() == 1
            && self.models().scorer_if_any(Role::Embedding).is_some()
            && scorer.calibrations.only_beside_embedding(&request);
        if request.auto_k && calibrations.is_empty() && !lone {
            return Err(place::not_calibrated(&request, || scorer.calibrations.why_none(&request, sha256.as_deref())));
        }
        request.fusion.learnt = calibrations.learnt();
        let given = given.as_ref().unwrap_or(&request);
        generator.position_bias.check(request.context_order)?;
        let method = request.method();
        let admitted = self.admit_ranking(call, reading, &request)?;
        let compressor = self.compressor(call, &reader, given).await?;
        let compression_cost = compressor.as_ref().map_or(0, Compressor::cost);
        let (inline_cost, elsewhere) = self.inline_reserve(call, reading, given).await?;
        let mut driver = self.driver(call, &request, &reader, copies.clone());
        driver.reserved = inline_cost + compression_cost;
        driver.elsewhere = elsewhere;
        driver.quota = quota.clone();
        driver.listener = listener;
        driver.alone = Alone::wanting(compressor.as_ref().and_then(|compressor| compressor.wanted.clone()));
        let mut driven = driver.drive(request.clone()).await?;
        let (usage, alone) = (driver.usage, driver.alone);
        // Those of a model beside the generator are not its work.
        let beside = if method.beside().is_some() { usage.tokens } else { 0 };
        if let Some(fit) = &driven.scored.fit {
            call.tally().set_fit(fit.diagnostics.status());
        }
        if let Some(fit) = &driven.scored.fit
            && request.moi.is_plain()
            && request.opening.is_built_in()
            // The three passages that a cascade could not tell apart are no fair sample of a list.
            && driven.scored.stages.is_empty()
            // What arranges a context is the generator's profile; a scorer's fits say nothing of it.
            && scoring.role() == Role::Generator
            && scorer.position_bias.learn(fit)
        {
            // Saving runs in the background, so that a slow or full disk does not delay or fail the request.
            let bias = Arc::clone(&scorer.position_bias);
            tokio::task::spawn_blocking(move || bias.save_unless_busy());
        }
        // A calibration is one of the method's values.
        let unread = place::is_unread(&request, &driven.scored);
        let calibrations = if unread { Applicable::default() } else { calibrations };
        let mixed = driven.scored.fusion.is_some_and(|fusion| fusion.embedding.is_some());
        if mixed && calibrations.beside_embedding.is_none() && calibrations.alone.is_some() {
            driven.scored.warnings.push(WITHOUT_EMBEDDING.to_owned());
        }
        let calibration = if mixed { calibrations.beside_embedding } else { calibrations.alone };
        driven.scored.warnings.extend(passed_over);
        if place::mixes(&request, &driven.scored) {
            let request = request.clone();
            let mix = move |_: &Call| {
                Ok::<_, EngineError>(Driven { scored: place::mix(&request, driven.scored), cut: driven.cut })
            };
            driven = call.compute(mix).await?;
        }
        let mut placed = if request.auto_k {
            // What it sums takes milliseconds for long lists.
            let (request, generator, scorer) = (request.clone(), Arc::clone(&generator), Arc::clone(&scorer));
            call.compute(move |_| {
                place::place((&generator, &scorer), &request, calibration.as_ref(), driven, (usage, &copies))
            })
            .await?
        } else {
            place::place((&generator, &scorer), &request, calibration.as_ref(), driven, (usage, &copies))?
        };
        // Before the utility, which gives back what the generator no longer has to do while answers are judged.
        self.compress(call, compressor, (given, alone), &mut placed).await?;
        let read = placed.usage.tokens;
        if !placed.passages.is_empty() {
            self.measure_inline(call, given, &mut placed, &quota).await?;
        }
        let measured = placed.usage.tokens - read;
        // Where nothing is returned no utility is measured, which says nothing of requests for one.
        let idle = request.inline.is_some() && placed.inline.is_none();
        let whole = !idle && !placed.has_idle_compression(&request) && !request.was_bounded(placed.usage.tokens);
        if let Some(admitted) = admitted.filter(|_| whole) {
            let apart = reading.role() == Role::Scorer;
            let others = beside + if apart { measured } else { 0 };
            admitted.learn(placed.usage.tokens - others);
        }
        placed.usage.total_ms = super::milliseconds(started);
        Ok(placed)
    }

    fn driver<'a>(
        &'a self,
        call: &'a Call,
        request: &RerankRequest,
        scorer: &Arc<ServedGenerator>,
        copies: Copies,
    ) -> Driver<'a> {
        let asks_model = request.method().asks_generator();
        Driver {
            call,
            model: asks_model.then(|| Arc::clone(scorer)),
            speed: scorer.scheduler.stats().reading_speed(),
            elsewhere: (0, 0.0),
            models: &self.models,
            limits: self.limits,
            reserved: 0,
            listener: None,
            tells_interim: request.method().signal().is_some() || !place::asks_mix(request),
            usage: Usage::default(),
            planned: 0,
            spared: 0,
            quota: Quota::default(),
            rounds: None,
            alone: Alone::default(),
            copies,
            passages: request.passages.len(),
        }
    }
}
