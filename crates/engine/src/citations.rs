//! Citations of an answer, checked by the entailment model (ALCE; [`rag_metrics::citation`] has the measures).
//!
//! The premise is the text of the cited passages, one per line, each after its title, as in the authors' program.
//! Only the pairs that the measures need are judged, in at most three rounds.

use std::collections::HashMap;
use std::sync::Arc;

use super::checks::{check_passages, check_question};
use super::models::Models;
use super::rerank::Blanks;
use super::sampling::measure::Verdicts;
use super::sampling::texts::Texts;
use crate::types::{EngineError, Limits, Passage, read_as, unmarked};
use prefix_scheduler::call::Call;
use prefix_scheduler::scheduler::entailment::Judge;
use rag_metrics::belief::{Rule, Verdict};
use rag_metrics::citation::{Check, Citations, CitedPair, OutOfRange, Statement, statements};

/// Most statements of an answer.
const MOST_STATEMENTS: usize = 1_000;
/// Most citations of an answer.
const MOST_CITATIONS: usize = 10_000;
/// Most citations of a statement.
const MOST_CITED: usize = 256;
/// Most bytes of a premise: more than an entailment model reads. The end is cut, as the model would cut it.
const PREMISE_BYTES: usize = 64 << 10;
/// Most bytes of a question before a statement: some 250 of 512 tokens. The end of the question is used.
const QUESTION_BYTES: usize = 1_024;
/// Most bytes of the premises of all pairs. Each statement may cite every passage, and each pair is evaluated
/// separately.
const MOST_BYTES: usize = 16 << 20;

/// An answer with the passages that it cites.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CitationRequest {
    /// The answer.
    pub answer: String,
    /// The passages; number 1 is the first.
    pub passages: Vec<Passage>,
    /// Precedes every statement; may be empty.
    pub question: String,
    /// Least probability of entailment of a supported statement; if `None`, the likeliest verdict decides.
    pub threshold: Option<f64>,
    /// The cost of citations without a passage.
    pub out_of_range: OutOfRange,
}

/// The checked citations of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CitationReport {
    /// The statements' texts and cited numbers.
    pub statements: Vec<Statement>,
    /// The measures.
    pub citations: Citations,
    /// For each statement, the probability that its passages together entail it, and that each of them does; `None`
    /// if not judged.
    pub entailment: Vec<(Option<f64>, Vec<Option<f64>>)>,
    /// Number of pairs that the model judged.
    pub judged_pairs: usize,
    /// Remarks for the caller.
    pub warnings: Vec<String>,
    /// Name of the entailment model and SHA-256 of its file.
    pub model: (String, String),
}

impl CitationRequest {
    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        let (bytes, most) = (self.answer.len(), limits.passage_bytes);
        if bytes > most {
            return Err(EngineError::invalid("answer", format!("{bytes} bytes given, at most {most} allowed")));
        }
        if self.passages.is_empty() {
            return Err(EngineError::invalid("passages", "must not be empty"));
        }
        check_passages(&self.passages, limits)?;
        if !self.question.is_empty() {
            check_question(&self.question, limits)?;
        }
        if self.threshold.is_some_and(|least| !(least > 0.0 && least <= 1.0)) {
            return Err(EngineError::invalid("threshold", "must be above 0 and at most 1"));
        }
        Ok(())
    }

    fn supports(&self, verdict: &Verdict) -> bool {
        self.threshold.map_or_else(|| verdict.entails(), |least| verdict.entailment >= least)
    }

    /// The text of cited passages.
    fn premise(&self, passages: &[usize]) -> String {
        let mut joined = String::new();
        for &index in passages {
            if joined.len() >= PREMISE_BYTES {
                break;
            }
            if !joined.is_empty() {
                joined.push('\n');
            }
            let (title, text) = read_as(&self.passages[index].title, &self.passages[index].text);
            if !title.trim().is_empty() {
                joined.extend(["Title: ", title.trim(), "\n"]);
            }
            joined.push_str(text.trim());
        }
        let end = (0..=PREMISE_BYTES.min(joined.len())).rev().find(|&at| joined.is_char_boundary(at));
        joined.truncate(end.unwrap_or(0));
        joined
    }

    /// True if the cited passages have no text.
    fn is_blank(&self, passages: &[usize]) -> bool {
        passages.iter().all(|index| self.passages[*index].is_blank())
    }

    fn premise_bytes(&self, passages: &[usize]) -> usize {
        let bytes = |index: &usize| self.passages[*index].text.len() + self.passages[*index].title.len() + 9;
        passages.iter().map(bytes).sum()
    }

    /// A statement as judged, after the end of the question. A model that reads a few hundred tokens would cut the
    /// statement after a long question.
    fn hypothesis(&self, statement: &Statement) -> String {
        let question = unmarked(&self.question).trim();
        let from = question.len().saturating_sub(QUESTION_BYTES);
        let begins = |at: &usize| *at == 0 || question[..*at].ends_with(char::is_whitespace);
        let bounds = || (from..=question.len()).filter(|at| question.is_char_boundary(*at));
        let from =
            bounds().take_while(|at| *at < from + 64).find(begins).or_else(|| bounds().next()).unwrap_or_default();
        format!("{} {}", question[from..].trim(), statement.text).trim().to_owned()
    }
}

/// The statements of an answer, within the bounds.
fn read(answer: &str) -> Result<Vec<Statement>, EngineError> {
    let statements = statements(unmarked(answer));
    let invalid = |problem: String| Err(EngineError::invalid("answer", problem));
    if statements.is_empty() {
        return invalid("must hold a statement".into());
    }
    if statements.len() > MOST_STATEMENTS {
        return invalid(format!("{} statements given, at most {MOST_STATEMENTS} allowed", statements.len()));
    }
    if let Some(one) = statements.iter().find(|one| one.citations.len() > MOST_CITED) {
        let count = one.citations.len();
        return invalid(format!("a statement with {count} citations given, at most {MOST_CITED} allowed"));
    }
    let citations: usize = statements.iter().map(|statement| statement.citations.len()).sum();
    if citations > MOST_CITATIONS {
        return invalid(format!("{citations} citations given, at most {MOST_CITATIONS} allowed"));
    }
    Ok(statements)
}

/// Premises with a number.
#[derive(Default)]
struct Premises {
    numbers: HashMap<Vec<usize>, usize>,
    /// Total over all pairs.
    bytes: usize,
}

impl Premises {
    /// Each pair without a number, once.
    fn open(&mut self, request: &CitationRequest, pairs: &[CitedPair]) -> Result<Vec<Vec<usize>>, EngineError> {
        let mut open: Vec<Vec<usize>> = Vec::new();
        for pair in pairs.iter().filter(|pair| !self.numbers.contains_key(&pair.passages)) {
            open.push(pair.passages.clone());
        }
        open.sort();
        open.dedup();
        let read = |pair: &CitedPair| request.premise_bytes(&pair.passages).min(PREMISE_BYTES);
        self.bytes += pairs.iter().map(read).sum::<usize>();
        if self.bytes > MOST_BYTES {
            let problem = format!("the cited passages of all statements take more than {MOST_BYTES} bytes");
            return Err(EngineError::invalid("passages", problem));
        }
        Ok(open)
    }
}

/// Checks citations of answers.
#[derive(Debug, Clone)]
pub struct CitationChecker {
    pub(crate) models: Models,
    pub(crate) limits: Limits,
}

impl CitationChecker {
    /// Checks the citations of an answer.
    ///
    /// # Errors
    /// As [`check_citations`]; also if no entailment model is configured.
    pub async fn check(&self, call: &Call, request: CitationRequest) -> Result<CitationReport, EngineError> {
        check_citations(call, &self.limits, request, self.models.judge()?).await
    }
}

/// Checks the citations of an answer.
///
/// # Errors
/// [`EngineError`] with the field at fault; [`EngineError::Pairs`] if more pairs are needed than `limits` allow; or
/// if the entailment model cannot be loaded.
pub async fn check_citations(
    call: &Call,
    limits: &Limits,
    request: CitationRequest,
    judge: &Judge,
) -> Result<CitationReport, EngineError> {
    request.check(limits)?;
    let request = Arc::new(request);
    let inner = Arc::clone(&request);
    let split = move |_: &Call| {
        let statements = read(&inner.answer)?;
        let hypotheses = statements.iter().map(|statement| inner.hypothesis(statement)).collect::<Vec<String>>();
        Ok::<_, EngineError>((statements, hypotheses))
    };
    let (statements, hypotheses) = call.compute(split).await?;
    let mut verdicts = Verdicts::new(Some(judge), Texts::after(None), call, limits.pairs);
    let hypotheses = verdicts.numbers(hypotheses).await?;
    let mut check = Check::new(&statements, request.passages.len());
    let (mut premises, mut probabilities, mut long) = (Premises::default(), HashMap::new(), Vec::new());
    loop {
        let needed = check.needed();
        if needed.is_empty() {
            break;
        }
        if probabilities.len() + needed.len() > limits.pairs {
            return Err(EngineError::Pairs { allowed: limits.pairs });
        }
        let open = premises.open(&request, &needed)?;
        let (inner, lists) = (Arc::clone(&request), open.clone());
        let join = move |_: &Call| {
            let texts = lists.iter().map(|list| inner.premise(list));
            Ok::<_, EngineError>(texts.collect::<Vec<String>>())
        };
        let texts = call.compute(join).await?;
        premises.numbers.extend(open.into_iter().zip(verdicts.numbers(texts).await?));
        let numbered = |pair: &CitedPair| Some((*premises.numbers.get(&pair.passages)?, hypotheses[pair.statement]));
        let judged = needed.iter().filter(|pair| !request.is_blank(&pair.passages));
        verdicts.judge(judged.filter_map(numbered).collect(), Rule::Strict).await?;
        for pair in needed {
            if request.is_blank(&pair.passages) {
                // An empty passage supports nothing; the model is not asked.
                probabilities.insert(pair.clone(), 0.0);
                check.absorb(pair, false);
                continue;
            }
            let missing = || EngineError::Internal("a verdict is missing".into());
            let (premise, hypothesis) = numbered(&pair).ok_or_else(missing)?;
            let verdict = verdicts.get(premise, hypothesis).ok_or_else(missing)?;
            let statement = request.question.len().min(QUESTION_BYTES) + statements[pair.statement].text.len();
            let bytes = request.premise_bytes(&pair.passages) + statement;
            if verdicts.model.as_ref().is_some_and(|model| model.may_cut(bytes)) {
                long.push(pair.statement);
            }
            probabilities.insert(pair.clone(), verdict.entailment);
            check.absorb(pair, request.supports(&verdict));
        }
    }
    let missing = || EngineError::Internal("a statement was not checked".into());
    let citations = check.finish(request.out_of_range).ok_or_else(missing)?;
    let of = |statement: usize, passages: Vec<usize>| probabilities.get(&CitedPair { passages, statement }).copied();
    let entailment = citations.statements.iter().enumerate().map(|(statement, checked)| {
        let passages: Option<Vec<usize>> =
            checked.citations.iter().map(|one| one.number.checked_sub(1).filter(|_| one.exists)).collect();
        let alone = |passage: Option<usize>| passage.and_then(|passage| of(statement, vec![passage]));
        let each = checked.citations.iter().map(|one| alone(one.number.checked_sub(1)));
        (passages.and_then(|passages| of(statement, passages)), each.collect())
    });
    let entailment = entailment.collect();
    let mut warnings = Vec::from_iter(Blanks::unread(&request.passages));
    long.sort_unstable();
    long.dedup();
    if let (false, Some(model)) = (long.is_empty(), &verdicts.model) {
        let (count, tokens) = (long.len(), model.most_tokens);
        warnings
            .push(format!("the passages of {count} statements may be longer than the {tokens} tokens that are read"));
    }
    if request.question.trim().len() > QUESTION_BYTES {
        warnings.push(format!("of the question the last {QUESTION_BYTES} bytes were put before each statement"));
    }
    let configured = judge.model();
    let model = verdicts.model.as_ref().map_or_else(
        || (configured.name.clone(), configured.sha256.clone()),
        |model| (model.name.clone(), model.sha256.clone()),
    );
    let judged_pairs = verdicts.judged;
    Ok(CitationReport { statements, citations, entailment, judged_pairs, warnings, model })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_premise_is_read_as_every_passage_is() {
        let rows = [
            ("T", "a", "Title: T\na"),
            ("", "a", "a"),
            ("T", " ", "T"),
            ("\u{feff}T", "\u{feff}a", "Title: T\na"),
            ("\u{feff}", "\u{feff}a", "a"),
        ];
        for (title, text, premise) in rows {
            let passage = Passage { title: title.into(), text: text.into(), ..Passage::default() };
            let request = CitationRequest { passages: vec![passage], ..CitationRequest::default() };
            assert_eq!(request.premise(&[0]), premise, "{title:?} {text:?}");
        }
        assert_eq!(read("\u{feff}It was [1].").unwrap(), read("It was [1].").unwrap());
    }

    /// After a question of 600 tokens the statement was cut off, and all statements had one verdict.
    #[test]
    fn the_end_of_a_long_question_stands_before_a_statement() {
        let statement = &statements("It was Moira Kell [1].")[0];
        let asked = |question: String| CitationRequest { question, ..CitationRequest::default() }.hypothesis(statement);
        assert_eq!(asked("Who built it?".into()), format!("Who built it? {}", statement.text));
        let whole = format!("First {}who?", "word ".repeat(150));
        assert!(asked(whole).starts_with("First word"));
        let cut = asked(format!("First {}who?", "w\u{f6}rter ".repeat(400)));
        assert!(cut.starts_with("w\u{f6}rter w") && cut.ends_with(&format!("who? {}", statement.text)), "{cut}");
        assert!(cut.len() <= QUESTION_BYTES + 1 + statement.text.len());
        let unbroken = asked("\u{6771}".repeat(2_000));
        assert!(unbroken.len() > 900 && unbroken.len() <= QUESTION_BYTES + 1 + statement.text.len());
    }
}
