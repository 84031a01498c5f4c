//! Conversions of CheckCitations between messages and engine types.

use super::convert_parts::{narrow, passages, passages_to_wire};
use super::v1;
use engine::citations::{CitationReport, CitationRequest};
use rag_metrics::citation::OutOfRange;

pub fn request(wire: v1::CheckCitationsRequest) -> CitationRequest {
    CitationRequest {
        answer: wire.answer,
        passages: passages(wire.passages),
        question: wire.question,
        threshold: wire.threshold,
        out_of_range: if wire.skip_out_of_range { OutOfRange::LeftOut } else { OutOfRange::Imprecise },
    }
}

/// Converts a request to a message, for clients.
pub(super) fn request_to_wire(request: &CitationRequest) -> v1::CheckCitationsRequest {
    v1::CheckCitationsRequest {
        answer: request.answer.clone(),
        passages: passages_to_wire(&request.passages),
        question: request.question.clone(),
        threshold: request.threshold,
        skip_out_of_range: request.out_of_range == OutOfRange::LeftOut,
    }
}

pub fn response(report: CitationReport) -> v1::CheckCitationsResponse {
    let checked = report.statements.into_iter().zip(report.citations.statements).zip(report.entailment);
    let statements = checked.map(|((statement, checked), (entailment, alone))| v1::CheckedStatement {
        text: statement.text,
        supported: checked.supported,
        entailment,
        citations: checked
            .citations
            .iter()
            .zip(alone)
            .map(|(citation, entailment)| v1::CheckedCitation {
                number: narrow(citation.number),
                exists: citation.exists,
                precise: citation.precise,
                entailment,
            })
            .collect(),
    });
    v1::CheckCitationsResponse {
        statements: statements.collect(),
        recall: report.citations.recall,
        precision: report.citations.precision,
        citations: narrow(report.citations.counted),
        judged_pairs: narrow(report.judged_pairs),
        warnings: report.warnings,
        model: report.model.0,
        model_sha256: report.model.1,
    }
}
