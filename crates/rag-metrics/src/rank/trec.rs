//! trec_eval's names and layout.

use super::{Kind, Metric};

impl Metric {
    /// trec_eval's name of the metric, or ir-measures' if trec_eval has none.
    #[must_use]
    pub fn trec_name(&self) -> String {
        let plain = self.rel.is_none() && !self.judged_only;
        let cut = |all: &str, at: &str| self.cutoff.map_or_else(|| all.to_owned(), |k| format!("{at}_{k}"));
        let name = match self.kind {
            _ if !plain => None,
            Kind::P => self.cutoff.map(|k| format!("P_{k}")),
            Kind::R => Some(cut("set_recall", "recall")),
            Kind::Ap => Some(cut("map", "map_cut")),
            Kind::GmAp => Some("gm_map".into()),
            Kind::Rr if self.cutoff.is_none() => Some("recip_rank".into()),
            Kind::Ndcg { exponential: false, within_list: false } => Some(cut("ndcg", "ndcg_cut")),
            Kind::Success => self.cutoff.map(|k| format!("success_{k}")),
            Kind::Rprec => Some("Rprec".into()),
            Kind::Bpref => Some("bpref".into()),
            Kind::InfAp => Some("infAP".into()),
            Kind::IPrec(recall) => Some(format!("iprec_at_recall_{recall:.2}")),
            Kind::ElevenPoint => Some("11pt_avg".into()),
            Kind::SetP => Some("set_P".into()),
            Kind::SetR => Some("set_recall".into()),
            Kind::SetF(beta) if (beta - 1.0).abs() < 1e-12 => Some("set_F".into()),
            Kind::SetAp => Some("set_map".into()),
            Kind::NumQ => Some("num_q".into()),
            Kind::NumRet => Some("num_ret".into()),
            Kind::NumRel => Some("num_rel".into()),
            Kind::NumRelRet => Some("num_rel_ret".into()),
            _ => None,
        };
        name.unwrap_or_else(|| self.to_string())
    }

    /// A line in trec_eval's layout: counts as whole numbers, other values with four digits.
    #[must_use]
    pub fn trec_line(&self, query: &str, value: f64) -> String {
        let number = if self.is_count() { format!("{value:.0}") } else { format!("{value:.4}") };
        format!("{:<22}\t{query}\t{number}", self.trec_name())
    }
}
