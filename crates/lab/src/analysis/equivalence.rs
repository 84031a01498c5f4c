//! Does the entailment model recognise equivalent answers (Dai et al., *SePer*, Table 1, section 4.1.1)?
//!
//! People judged if candidate answers mean the same as a reference answer. A measure gives every candidate a score and
//! a decision. Accuracy and F1 are computed from the decision, AUC and the correlations from the score. The rules of
//! entailment are those of the product:
//!
//! | measure | score | decision |
//! |---|---|---|
//! | entailment | E(candidate, reference), which soft SePer sums | entailment is the likeliest verdict |
//! | rule of hard SePer | the decision | no direction contradicts, and one entails |
//! | rule of clusters | the decision | both directions entail |
//! | exact match, containment | the decision | |
//! | BERTScore | F1 over the token embeddings of the embedding model | at least one half |
//! | BERTScore | F1 over the token states of the embedding model | at least one half |
//!
//! A candidate has the best value over the references. BERTScore is left out if a question has none: over a server,
//! or without an embedding model.

use serde::{Deserialize, Serialize};

use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Series};
use crate::study::data::{Data, Question, Sources};
use crate::study::report::Report;
use files;
use prefix_scheduler::model::entailment::TextPair;
use protocol::v1;
use rag_metrics::belief::{Rule, Verdict};
use rag_metrics::lexical;

mod agreement;

use agreement::{Judged, Quality, by_system, quality, verdict};

/// See the module.
pub(super) struct Equivalence;

/// Verdicts of the entailment model on one candidate, over its references.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Candidate {
    /// The largest E(candidate, reference).
    entailment: f64,
    /// E(candidate, reference) of the first reference.
    first: f64,
    /// True if entailment is the likeliest verdict for a reference.
    entails: bool,
    /// True if a reference is equivalent by the rule of hard SePer.
    loose: bool,
    /// True if a reference is equivalent by the rule of clusters.
    strict: bool,
    /// BERTScore's F1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bert_score: Option<f64>,
    /// True if a verdict has a probability of contradiction. A two-way model has none.
    contradiction: bool,
}

impl Analysis for Equivalence {
    fn about(&self) -> About {
        About::new(
            "equivalence",
            "Does the entailment model recognise equivalent answers? (SePer, Table 1)",
            &[Need::Entailment],
        )
        .passages(0)
    }

    fn load(&self, sources: &Sources) -> Result<Data, StudyError> {
        sources.load_with(files::equivalence::lists)
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let list = &question.list;
            let both = |candidate: &str| {
                let pair = |premise: &str, hypothesis: &str| TextPair::new(premise, hypothesis);
                let directions = |reference: &String| [pair(candidate, reference), pair(reference, candidate)];
                list.answers.iter().flat_map(directions).collect::<Vec<_>>()
            };
            let pairs: Vec<TextPair> = list.passages.iter().flat_map(|passage| both(&passage.text)).collect();
            let verdicts = context.backend.client.entail(&pairs, &list.question).await?;
            let verdicts: Vec<Verdict> = verdicts.iter().map(from_wire).collect();
            // Every candidate has two verdicts per reference.
            let each = verdicts.chunks(2 * list.answers.len().max(1));
            let mut candidates: Vec<Candidate> = each.map(candidate).collect();
            let texts: Vec<String> = list.passages.iter().map(|passage| passage.text.clone()).collect();
            let scores = context.backend.bert_scores(&texts, &list.answers).await?;
            for (candidate, score) in candidates.iter_mut().zip(scores.into_iter().flatten()) {
                candidate.bert_score = Some(score);
            }
            if candidates.len() != list.passages.len() {
                return Err(Refusal::Question("some candidates have no verdict".to_owned()));
            }
            kept(candidates)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let candidates: Vec<Vec<Candidate>> = values(answers)?;
        let mut report = Report::default();
        let measures: Vec<(&'static str, Vec<Vec<Judged>>)> = measures(answers, &candidates);
        let mut rows = Vec::new();
        let mut columns = Vec::new();
        let mut qualities: Vec<(&'static str, Quality)> = Vec::new();
        for (name, judged) in &measures {
            let found = quality(judged, &settings.statistics);
            let cells = found.named().map(|(what, mean)| report.number(format!("{name}, {what}"), "share", mean));
            rows.push([vec![(*name).to_owned()], cells.to_vec()].concat());
            columns.extend(Series::lone(*name, 0.0, &found.auc));
            qualities.push((*name, found));
        }
        let all = measures.first().map_or(&[][..], |(_, judged)| judged.as_slice());
        let (count, equivalent) = all
            .iter()
            .flatten()
            .fold((0, 0), |(count, equivalent), one| (count + 1, equivalent + usize::from(one.equivalent)));
        report.verdict = verdict(&measures, &qualities, (count, &settings.statistics));
        report.charts.push(chart::intervals(
            Axes::new("AUC: how often an equivalent answer scores above one that is not", "AUC", ""),
            &columns,
        )?);
        let head = ["measure"].into_iter().chain(Quality::NAMES);
        report.table(
            format!(
                "Agreement with people on {count} answers to {} questions, {equivalent} of them equivalent",
                answers.len()
            ),
            head,
            rows,
        );
        let table = by_system(answers, &measures, &mut report);
        report.tables.extend(table);
        report.notes.push(
"Every text is judged after its question, as in SePer. A candidate takes its best reference; \"first reference\" is the entailment score with the first reference only."
                .to_owned(),
        );
        report.notes.push(
"Accuracy and F1 are computed from the decision. Entailment: it is the likeliest verdict. Hard SePer: no direction contradicts, and one entails. Clusters: both directions entail. Token F1, ROUGE-L and BERTScore: a score of at least 0.5. BERTScore uses the token states of the embedding model. Its row is absent if an answer has none: over a server, without such a model, or if texts are too long. F1 counts equivalent as positive. Intervals draw whole questions with all their candidates."
                .to_owned(),
        );
        Ok(report)
    }
}

fn from_wire(wire: &v1::EntailmentVerdict) -> Verdict {
    Verdict { entailment: wire.entailment, neutral: wire.neutral, contradiction: wire.contradiction }
}

/// A candidate, from its verdicts to each reference and back.
fn candidate(verdicts: &[Verdict]) -> Candidate {
    let any = |rule: Rule| verdicts.chunks_exact(2).any(|both| rule.equivalent(&both[0], &both[1]));
    let forward = || verdicts.iter().step_by(2);
    Candidate {
        entailment: forward().map(|verdict| verdict.entailment).fold(0.0, f64::max),
        first: forward().next().map_or(0.0, |verdict| verdict.entailment),
        entails: forward().any(Verdict::entails),
        loose: any(Rule::Loose),
        strict: any(Rule::Strict),
        bert_score: None,
        contradiction: verdicts.iter().any(|verdict| verdict.contradiction > 0.0),
    }
}

/// Score and decision of a candidate, from its verdicts, its text and the references.
type Scoring<'a> = &'a dyn Fn(&Candidate, &str, &[String]) -> (f64, bool);

/// Every measure on every candidate, by question.
fn measures(answers: &[Answer<'_>], candidates: &[Vec<Candidate>]) -> Vec<(&'static str, Vec<Vec<Judged>>)> {
    let three_way = candidates.iter().flatten().any(|one| one.contradiction);
    let of = |score: Scoring<'_>| {
        let question = |(answer, candidates): (&Answer<'_>, &Vec<Candidate>)| {
            let list = &answer.question.list;
            let texts = list.passages.iter().map(|passage| passage.text.as_str());
            let one = |((candidate, text), label): ((&Candidate, &str), &f64)| {
                let (score, decision) = score(candidate, text, &list.answers);
                Judged { score, decision, equivalent: *label >= 0.5 }
            };
            candidates.iter().zip(texts).zip(&list.labels).map(one).collect::<Vec<_>>()
        };
        answers.iter().zip(candidates).map(question).collect::<Vec<_>>()
    };
    let yes_or_no = |is: bool| (f64::from(u8::from(is)), is);
    let half = |score: f64| (score, score >= 0.5);
    let mut measures = vec![
        ("entailment", of(&|one, _, _| (one.entailment, one.entails))),
        ("first reference", of(&|one, _, _| half(one.first))),
    ];
    if three_way {
        measures.push(("hard SePer", of(&|one, _, _| yes_or_no(one.loose))));
    }
    measures.extend([
        ("clusters", of(&|one, _, _| yes_or_no(one.strict))),
        ("exact match", of(&|_, text, references| half(lexical::exact_match(text, references)))),
        ("containment", of(&|_, text, references| half(lexical::contains(text, references)))),
        ("token F1", of(&|_, text, references| half(lexical::token_f1(text, references)))),
        ("ROUGE-L", of(&|_, text, references| half(lexical::rouge_l(text, references)))),
    ]);
    if candidates.iter().flatten().all(|one| one.bert_score.is_some()) {
        measures.push(("BERTScore", of(&|one, _, _| half(one.bert_score.unwrap_or(0.0)))));
    }
    measures
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sampled::{bare_settings, figure};
    use super::*;
    use engine::types::Passage;
    use files::labelled::LabelledList;

    fn verdict_of(entailment: f64, neutral: f64) -> Verdict {
        Verdict { entailment, neutral, contradiction: 1.0 - entailment - neutral }
    }

    /// The first reference is contradicted; the second is entailed in one direction.
    #[test]
    fn a_candidate_takes_its_best_reference() {
        let (no, maybe, yes) = (verdict_of(0.1, 0.1), verdict_of(0.3, 0.7), verdict_of(0.9, 0.1));
        let found = candidate(&[no, no, yes, maybe]);
        assert_eq!((found.entailment, found.first), (0.9, 0.1));
        assert!(found.entails && found.loose && !found.strict && found.contradiction);
        assert!(candidate(&[yes, yes]).strict);
        assert_eq!(candidate(&[]), Candidate::default());
    }

    fn question(texts: &[(&str, &str, f64)]) -> Question {
        let passages = texts.iter().enumerate().map(|(at, (system, text, _))| Passage {
            title: (*system).to_owned(),
            ..Passage::untitled(at, (*text).to_owned())
        });
        let list = LabelledList {
            question: "Who?".to_owned(),
            passages: passages.collect(),
            labels: texts.iter().map(|(_, _, label)| *label).collect(),
            answers: vec!["Ada Voss".to_owned()],
            ..LabelledList::default()
        };
        Question { list, ..Question::default() }
    }

    /// Entailment decides three of four rightly, and ranks every equivalent answer above every other. Containment
    /// decides two rightly.
    #[test]
    fn agreement_by_hand() {
        let first = question(&[("a", "Ada Voss kept it", 1.0), ("b", "not Ada Voss", 0.0)]);
        let second = question(&[("a", "Mrs Voss", 1.0), ("b", "Orrin", 0.0)]);
        let score = |entailment: f64, entails: bool| Candidate {
            entailment,
            entails,
            first: entailment,
            ..Candidate::default()
        };
        let answers = [
            Answer { question: &first, value: json!([score(0.9, true), score(0.6, true)]) },
            Answer { question: &second, value: json!([score(0.8, true), score(0.2, false)]) },
        ];
        let report = Equivalence.report(&answers, &bare_settings()).unwrap();
        assert!(report.tables[0].rows.iter().all(|row| row[0] != "BERTScore"), "without an embedding model");
        let scored: Vec<Answer<'_>> = answers
            .iter()
            .zip([[0.9, 0.4], [0.6, 0.55]])
            .map(|(answer, scores)| {
                let mut value = answer.value.clone();
                for (candidate, score) in value.as_array_mut().unwrap().iter_mut().zip(scores) {
                    candidate["bert_score"] = json!(score);
                }
                Answer { question: answer.question, value }
            })
            .collect();
        let beside = Equivalence.report(&scored, &bare_settings()).unwrap();
        assert!((figure(&beside, "BERTScore, accuracy") - 0.75).abs() < 1e-12);
        assert!((figure(&beside, "BERTScore, AUC") - 1.0).abs() < 1e-12);
        let near = |name: &str, expected: f64| {
            let value = figure(&report, name);
            assert!((value - expected).abs() < 1e-12, "{name}: {value}");
        };
        near("entailment, accuracy", 0.75);
        // Two right, one wrong, none missed: 2·2 / (2·2 + 1).
        near("entailment, F1", 0.8);
        near("entailment, AUC", 1.0);
        near("containment, accuracy", 0.5);
        near("containment, F1", 0.5);
        near("containment, AUC", 0.5);
        near("entailment, b, accuracy", 0.5);
        near("entailment, a, F1", 1.0);
        assert!(report.tables[0].rows.iter().all(|row| row[0] != "hard SePer"), "a two-way model has no contradiction");
        assert_eq!(report.tables[1].head, ["measure", "a, F1 / accuracy", "b, F1 / accuracy"]);
        assert!(
            report.verdict.starts_with("The entailment model agrees with people on 75.0 % of 4 answers"),
            "{}",
            report.verdict
        );
    }
}
