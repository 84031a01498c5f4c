//! Builds the context of a prompt: ranks passages, chooses the most valuable ones that fit, and writes them.
//!
//! The size is that of the whole text, because tokens of the parts do not add up to tokens of the text. Passages are
//! chosen by the tokens of each, and with a smaller budget again if the whole text is then too large.

mod choice;
mod template;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;

use crate::models::{Models, ServedGenerator};
use crate::rerank::{ALL_DROPPED, RANKED_LAST, Reranker, arrange};
use crate::types::{
    BuiltContext, ContextPassage, ContextRequest, ContextSize, Dedup, DedupMode, EngineError, LeftOut, Passage, Ranked,
    RerankRequest, Reranked, read_as,
};
use choice::{Candidate, Choice, choose};
use numeric::real;
use prefix_scheduler::call::Call;
use template::{Template, Values};
use unicode_segmentation::UnicodeSegmentation;

/// Written between passages if the caller sets nothing.
const SEPARATOR: &str = "\n\n";

/// The warning if whole texts are worth more than compressed ones.
const USELESS_COMPRESSION: &str =
    "compression was not used: in this budget the compressed texts are worth no more than the whole ones";

/// Most characters of a separator.
const SEPARATOR_CHARACTERS: usize = 1_000;

/// Fewest tokens, or quadruples of characters, for which the beginning of a passage is taken.
const LEAST_CUT: usize = 16;

/// Builds contexts.
#[derive(Debug, Clone)]
pub struct ContextBuilder {
    pub(crate) models: Models,
    pub(crate) reranker: Reranker,
}

impl ContextRequest {
    /// Refuses options that are invalid for every list. For commands, which would otherwise load a model first.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] with the field at fault.
    pub fn check_options(&self) -> Result<(), EngineError> {
        let invalid = |field: &str, problem: String| Err(EngineError::invalid(field, problem));
        self.template()?;
        let characters = self.separator().chars().count();
        if characters > SEPARATOR_CHARACTERS {
            let problem = format!("{characters} characters given, at most {SEPARATOR_CHARACTERS} allowed");
            return invalid("separator", problem);
        }
        if self.ranking.inline.is_some() {
            return invalid("request.utility", "a context does not measure it: send it to Rerank".into());
        }
        if self.ranking.dedup.is_some_and(|dedup| dedup.mode == DedupMode::PushDown) {
            return invalid("request.dedup.mode", "near-duplicates cannot be pushed down in a context".into());
        }
        self.ranking.check_options().map_err(|error| error.under("request"))
    }

    fn template(&self) -> Result<Template, EngineError> {
        Template::new(&self.template).map_err(|problem| EngineError::invalid("template", problem))
    }

    fn separator(&self) -> &str {
        self.separator.as_deref().unwrap_or(SEPARATOR)
    }

    /// The ranking that the context needs.
    fn rerank_request(&self) -> RerankRequest {
        let mut request = self.ranking.clone();
        request.dedup.get_or_insert_with(Dedup::default);
        if let (Some(compression), ContextSize::Tokens(tokens)) = (&mut request.compression, self.size)
            && compression.ratio.is_none()
        {
            compression.target_tokens.get_or_insert(tokens);
        }
        request
    }
}

impl ContextBuilder {
    /// Builds a context. The work ends when the call stops.
    ///
    /// # Errors
    /// [`EngineError`], which names the field at fault; fields of the ranking begin with `request.`.
    pub async fn build(&self, call: &Call, request: ContextRequest) -> Result<BuiltContext, EngineError> {
        request.check_options()?;
        let ranking = request.rerank_request();
        let truncate = self.reranker.truncates(&ranking);
        let counter = match request.tokenizer.as_str() {
            "" => None,
            name => Some(self.models.tokenizer(call, name).await?),
        };
        let ranked = self.reranker.rerank(call, ranking, None).await.map_err(|error| error.under("request"))?;
        let reader = self.models.answering()?;
        call.compute(move |call| {
            let own = |text: &str| reader.tokenizer().text(text).len();
            let count: &dyn Fn(&str) -> usize = counter.as_ref().map_or(&own, |counter| &**counter);
            write(call, &reader, count, &request, ranked, truncate)
        })
        .await
    }
}

/// A passage as it may be written.
#[derive(Debug, Clone)]
struct Source<'a> {
    index: usize,
    id: &'a str,
    title: &'a str,
    text: &'a str,
    compressed: bool,
    value: f64,
}

/// A written context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Written {
    text: String,
    size: usize,
    /// The bytes of each passage's text, in the order of the text.
    spans: Vec<Range<usize>>,
}

/// Writes passages and measures the text.
struct Writer<'a> {
    tokens: &'a dyn Fn(&str) -> usize,
    template: Template,
    separator: &'a str,
    size: ContextSize,
}

impl Writer<'_> {
    fn write<'a>(&self, sources: impl IntoIterator<Item = &'a Source<'a>>) -> Written {
        let (mut text, mut spans) = (String::new(), Vec::new());
        for (place, source) in sources.into_iter().enumerate() {
            if place > 0 {
                text.push_str(self.separator);
            }
            let values = Values { number: place + 1, id: source.id, title: source.title, text: source.text };
            spans.push(self.template.write(values, &mut text));
        }
        let size = self.measure(&text);
        Written { text, size, spans }
    }

    fn measure(&self, text: &str) -> usize {
        match self.size {
            ContextSize::Tokens(_) => (self.tokens)(text),
            ContextSize::Characters(_) => text.chars().count(),
        }
    }

    /// Most tokens or characters.
    const fn most(&self) -> usize {
        match self.size {
            ContextSize::Tokens(most) | ContextSize::Characters(most) => most,
        }
    }

    /// Fewest tokens or characters of the beginning of a passage.
    const fn least_cut(&self) -> usize {
        match self.size {
            ContextSize::Tokens(_) => LEAST_CUT,
            ContextSize::Characters(_) => LEAST_CUT * 4,
        }
    }
}

/// A choice of passages that fits.
struct Fitting<'a> {
    written: Written,
    /// In the order of the text.
    sources: Vec<Source<'a>>,
    /// The passage whose end was cut.
    cut: Option<usize>,
}

impl Fitting<'_> {
    /// The total value, if the passages were chosen among `sources`. A cut passage has a share of its value.
    fn value(&self, sources: &[Source<'_>]) -> f64 {
        let bytes = |index: usize| sources.iter().find(|source| source.index == index).map_or(0, |one| one.text.len());
        let share = |source: &Source<'_>| {
            let is_cut = self.cut == Some(source.index);
            if is_cut { real(source.text.len()) / real(bytes(source.index).max(1)) } else { 1.0 }
        };
        self.sources.iter().map(|source| source.value * share(source)).sum()
    }
}

/// Most of these passages that a context may hold, however large.
fn allowed(sources: &[Source<'_>], most_per_source: usize) -> usize {
    let mut of_title: HashMap<&str, usize> = HashMap::new();
    let mut is_allowed = |title| {
        let count = of_title.entry(title).or_default();
        *count += 1;
        *count <= most_per_source
    };
    sources.iter().filter(|source| source.title.is_empty() || is_allowed(source.title)).count()
}

/// The order in which chosen passages are written, from their order by rank.
type Arrange<'a> = dyn Fn(&[usize]) -> Result<Vec<usize>, EngineError> + 'a;

/// Chooses among `sources`, best first, and writes them.
fn fit<'a>(
    call: &Call,
    writer: &Writer<'_>,
    sources: &[Source<'a>],
    most_per_source: usize,
    arrange: &Arrange<'_>,
    may_cut: bool,
) -> Result<Fitting<'a>, EngineError> {
    let separator = writer.measure(writer.separator);
    let mut candidates = Vec::with_capacity(sources.len());
    for source in sources {
        call.check()?;
        // At least 1, so that nothing is chosen for a budget of 0.
        let cost = (writer.write([source]).size + separator).max(1);
        candidates.push(Candidate { value: source.value, cost, source: source.title });
    }
    let arranged = |chosen: &[usize]| {
        let ranked: Vec<usize> = chosen.iter().map(|&at| sources[at].index).collect();
        let place: HashMap<usize, usize> = chosen.iter().map(|&at| (sources[at].index, at)).collect();
        Ok::<Vec<Source<'a>>, EngineError>(
            arrange(&ranked)?.iter().map(|index| sources[place[index]].clone()).collect(),
        )
    };
    let mut least_cut = may_cut.then(|| writer.least_cut());
    // The first passage has no separator before it.
    let mut budget = writer.most().saturating_add(separator);
    loop {
        call.check()?;
        let Choice { whole, cut } = choose(&candidates, budget, most_per_source, least_cut);
        let chosen = arranged(&whole)?;
        let written = writer.write(&chosen);
        if written.size > writer.most() {
            budget = budget.saturating_sub(written.size - writer.most());
            continue;
        }
        let Some(cut) = cut else { return Ok(Fitting { written, sources: chosen, cut: None }) };
        let mut with: Vec<usize> = whole.iter().copied().chain([cut]).collect();
        with.sort_unstable();
        if let Some(fitting) = begin(writer, arranged(&with)?, sources[cut].index) {
            return Ok(fitting);
        }
        // The template and the title leave too little room for its text.
        least_cut = None;
    }
}

/// Writes passages with as many words of the passage `cut` as fit; `None` if too few fit. The passage is not cut if its
/// whole text fits.
fn begin<'a>(writer: &Writer<'_>, mut sources: Vec<Source<'a>>, cut: usize) -> Option<Fitting<'a>> {
    let written = writer.write(&sources);
    if written.size <= writer.most() {
        // The costs of passages do not add up exactly to the size of the text.
        return Some(Fitting { written, sources, cut: None });
    }
    let place = sources.iter().position(|source| source.index == cut)?;
    let whole = sources[place].text;
    let ends = word_ends(whole);
    let mut written_to = |end: usize| {
        sources[place].text = &whole[..end];
        writer.write(&sources)
    };
    let fitting = ends.partition_point(|&end| written_to(end).size <= writer.most());
    let written = written_to(ends[fitting.checked_sub(1)?]);
    let kept = writer.measure(&written.text[written.spans[place].clone()]);
    // A longer text may have fewer tokens, so the search may miss by one.
    let fits = written.size <= writer.most() && kept >= writer.least_cut();
    fits.then_some(Fitting { written, sources, cut: Some(cut) })
}

/// Byte offsets of the ends of words, except the end of the text.
fn word_ends(text: &str) -> Vec<usize> {
    text.unicode_word_indices().map(|(at, word)| at + word.len()).filter(|end| *end < text.len()).collect()
}

/// The value of a passage: by how much it multiplies the odds of its score, above no effect. Scores near 1 are not told
/// apart, and passages that do not help keep the order of their scores.
fn value(score: f64) -> f64 {
    let score = score.clamp(1e-9, 1.0 - 1e-9);
    (score / (1.0 - score) - 1.0).max(score * 1e-6)
}

/// Blocking: chooses and writes the passages of a ranking.
fn write(
    call: &Call,
    reader: &ServedGenerator,
    tokens: &dyn Fn(&str) -> usize,
    request: &ContextRequest,
    ranked: Reranked,
    may_cut: bool,
) -> Result<BuiltContext, EngineError> {
    let passages = &request.ranking.passages;
    let writer = Writer { tokens, template: request.template()?, separator: request.separator(), size: request.size };
    let results = || ranked.passages.iter().filter(|result| !passages[result.index].is_blank());
    let source = |result: &Ranked| {
        let Passage { id, title, text, .. } = &passages[result.index];
        let (title, text) = read_as(title, text);
        Source {
            index: result.index,
            id,
            title: title.trim(),
            text: text.trim(),
            compressed: false,
            value: value(result.score),
        }
    };
    let mut sources: Vec<Source<'_>> = results().map(source).collect();
    let most_per_source = request.most_per_source.unwrap_or(usize::MAX);
    // The ranking has given the warnings of its arrangement.
    let arranged = |chosen: &[usize]| arrange(reader, &request.ranking, chosen, &mut Vec::new());
    let order = |chosen: &[usize]| Ok(arranged(chosen)?.order);
    let mut fitting = fit(call, &writer, &sources, most_per_source, &order, may_cut)?;
    let mut is_useless = false;
    let complete = fitting.cut.is_none() && fitting.sources.len() == allowed(&sources, most_per_source);
    if let Some(report) = ranked.compression.as_ref().filter(|_| !complete) {
        let short: HashMap<usize, &str> = report.passages.iter().map(|one| (one.index, one.text.trim())).collect();
        let mut shorter = sources.clone();
        for source in &mut shorter {
            let text = short.get(&source.index).copied().unwrap_or_default();
            (source.compressed, source.text) = (text != source.text, text);
        }
        shorter.retain(|source| !source.text.is_empty());
        let of_shorter = fit(call, &writer, &shorter, most_per_source, &order, may_cut)?;
        // Compression may drop passages that fit.
        is_useless = of_shorter.value(&shorter) <= fitting.value(&sources);
        if !is_useless {
            (fitting, sources) = (of_shorter, shorter);
        }
    }
    let Fitting { written, sources: chosen, cut } = fitting;
    let of: HashMap<usize, &Ranked> = results().map(|result| (result.index, result)).collect();
    let passage = |(source, span): (&Source<'_>, Range<usize>)| ContextPassage {
        index: source.index,
        span,
        score: of[&source.index].score,
        utility: of[&source.index].utility,
        duplicates: of[&source.index].duplicates.clone(),
        cut: cut == Some(source.index),
        compressed: source.compressed,
    };
    let written_passages: Vec<ContextPassage> = chosen.iter().zip(written.spans).map(passage).collect();
    let mut reasons: Vec<Option<LeftOut>> = passages
        .iter()
        .map(|passage| Some(if passage.is_blank() { LeftOut::Empty } else { LeftOut::Ranking }))
        .collect();
    let of_title = |title: &str| chosen.iter().filter(|source| source.title == title).count();
    for result in results() {
        let title = source(result).title;
        let full = !title.is_empty() && of_title(title) >= most_per_source;
        let dropped = !sources.iter().any(|source| source.index == result.index);
        reasons[result.index] = Some(match (dropped, full) {
            (true, _) => LeftOut::Empty,
            (false, true) => LeftOut::Source,
            (false, false) => LeftOut::Budget,
        });
        result.duplicates.iter().for_each(|&copy| reasons[copy] = Some(LeftOut::Duplicate(result.index)));
    }
    for source in &chosen {
        reasons[source.index] = None;
    }
    let ranks: Vec<usize> = results().map(|result| result.index).filter(|index| reasons[*index].is_none()).collect();
    // A context has no passages without text, and whole texts if compression left none.
    let holds = |warning: &&String| !warning.ends_with(RANKED_LAST) && *warning != ALL_DROPPED;
    let mut warnings: Vec<String> = ranked.warnings.iter().filter(holds).cloned().collect();
    let arrangement = arranged(&ranks)?;
    if is_useless {
        warnings.push(USELESS_COMPRESSION.to_owned());
    }
    if chosen.is_empty() {
        warnings.push(empty(&reasons).to_owned());
    }
    Ok(BuiltContext {
        tokens: tokens(&written.text),
        characters: written.text.chars().count(),
        text: written.text,
        passages: written_passages,
        left_out: reasons.into_iter().enumerate().filter_map(|(index, reason)| Some((index, reason?))).collect(),
        arrangement,
        usage: ranked.usage,
        warnings,
        model: ranked.model,
        reader: if request.tokenizer.is_empty() { reader.info.name.clone() } else { request.tokenizer.clone() },
    })
}

/// The warning of an empty context.
fn empty(reasons: &[Option<LeftOut>]) -> &'static str {
    if reasons.contains(&Some(LeftOut::Budget)) {
        "the context is empty: no passage fits; raise max_tokens or max_characters, or allow passages to be cut"
    } else {
        "the context is empty: no passage has text and is wanted by only_helpful, score_threshold and auto_k"
    }
}
