//! Names of metrics: those of ir-measures, with trec_eval's and ranx's as aliases.
//!
//! ```text
//! nDCG@10   P(rel=2)@5   AP   IPrec@0.1   RBP(p=0.8)@10   T(alpha=0.3)@5      ir-measures, and this project's own
//! ndcg_cut_10   P_5   P.5,10   map   recip_rank   iprec_at_recall_0.10        trec_eval
//! ndcg@10   precision@5   mrr@10-l2   hit_rate@1   rbp.95                      ranx
//! ```

use std::fmt;
use std::str::FromStr;

use super::{Kind, Metric};
use crate::quoted;
use crate::recall::alpha_of_beta;

/// An unknown name of a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric {}: {problem}", quoted(name))]
pub struct MetricError {
    /// The name as given.
    pub name: String,
    /// The problem with it.
    pub problem: String,
}

/// Names of each kind, ir-measures' first. Matching ignores case and treats `-` as `_`.
const NAMES: &[(&[&str], Kind)] = &[
    (&["P", "precision"], Kind::P),
    (&["R", "recall"], Kind::R),
    (&["AP", "MAP", "map_cut"], Kind::Ap),
    (&["GMAP", "gm_map"], Kind::GmAp),
    (&["RR", "MRR", "recip_rank"], Kind::Rr),
    (&["nDCG", "ndcg_cut", "ndcg"], Kind::Ndcg { exponential: false, within_list: false }),
    (&["nDCG(dcg='exp-log2')", "ndcg_burges"], Kind::Ndcg { exponential: true, within_list: false }),
    (&["Success", "hit_rate", "HR"], Kind::Success),
    (&["Hits"], Kind::Hits),
    (&["Rprec", "r_precision"], Kind::Rprec),
    (&["Bpref"], Kind::Bpref),
    (&["infAP"], Kind::InfAp),
    (&["IPrec", "iprec_at_recall"], Kind::IPrec(0.0)),
    (&["11pt_avg"], Kind::ElevenPoint),
    (&["SetP", "set_P"], Kind::SetP),
    (&["SetR", "set_recall"], Kind::SetR),
    (&["SetF", "set_F"], Kind::SetF(1.0)),
    (&["SetAP", "set_map"], Kind::SetAp),
    (&["Judged"], Kind::Judged),
    (&["ERR"], Kind::Err),
    (&["RBP"], Kind::Rbp(0.8)),
    (&["F", "f1"], Kind::F(0.5)),
    (&["Fe"], Kind::Fe(0.5)),
    (&["T"], Kind::T(0.5)),
    (&["T'", "Tprime"], Kind::TPrime(0.5)),
    (&["NumQ", "num_q"], Kind::NumQ),
    (&["NumRet", "num_ret"], Kind::NumRet),
    (&["NumRel", "num_rel"], Kind::NumRel),
    (&["NumRelRet", "num_rel_ret"], Kind::NumRelRet),
];

/// trec_eval's default cut-offs.
const TREC_CUTOFFS: [usize; 9] = [5, 10, 15, 20, 30, 100, 200, 500, 1000];

/// The default cut-offs of `success`.
const SUCCESS_CUTOFFS: [usize; 3] = [1, 5, 10];

/// The metrics that trec_eval prints by default, in its order.
const OFFICIAL: &str = "num_q num_ret num_rel num_rel_ret map gm_map Rprec bpref recip_rank iprec_at_recall P";

fn folded(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

fn kind_of(name: &str) -> Option<Kind> {
    let name = folded(name);
    NAMES.iter().find(|(names, _)| names.iter().any(|known| folded(known) == name)).map(|(_, kind)| *kind)
}

impl Metric {
    /// The metrics of one name. trec_eval's families (`P.5,10`, `ndcg_cut`, `official`) are several metrics, every
    /// other name is one.
    ///
    /// # Errors
    /// [`MetricError`] with the name and what is wrong with it.
    pub fn parse_all(name: &str) -> Result<Vec<Self>, MetricError> {
        let name = name.trim();
        if name.eq_ignore_ascii_case("official") {
            let lists: Result<Vec<Vec<Self>>, _> = OFFICIAL.split(' ').map(Self::parse_all).collect();
            return Ok(lists?.concat());
        }
        if let Some((base, cutoffs)) = name.split_once('.').filter(|(base, _)| is_trec_family(base)) {
            return cutoffs.split(',').map(|cutoff| format!("{base}_{cutoff}").parse()).collect();
        }
        if is_trec_family(name) {
            let tenths = || (0..=10).map(|tenth| format!("{:.2}", f64::from(tenth) / 10.0)).collect::<Vec<_>>();
            let known = if name == "success" { &SUCCESS_CUTOFFS[..] } else { &TREC_CUTOFFS };
            let ranks = || known.iter().map(ToString::to_string).collect();
            let cutoffs: Vec<String> = if name == "iprec_at_recall" { tenths() } else { ranks() };
            return cutoffs.iter().map(|cutoff| format!("{name}_{cutoff}").parse()).collect();
        }
        Ok(vec![name.parse()?])
    }
}

/// True if trec_eval applies the name to several cut-offs by default. `P` by itself is one of them.
fn is_trec_family(name: &str) -> bool {
    ["P", "ndcg_cut", "map_cut", "recall", "success", "iprec_at_recall"].contains(&name)
}

impl FromStr for Metric {
    type Err = MetricError;

    fn from_str(name: &str) -> Result<Self, MetricError> {
        let bad = |problem: String| MetricError { name: name.to_owned(), problem };
        let mut rest = name.trim();
        let mut rel = None;
        // ranx: "precision@5-l2".
        if let Some((head, level)) = rest.rsplit_once("-l")
            && let Ok(level) = level.parse::<u32>()
        {
            rel = Some(f64::from(level));
            rest = head;
        }
        let (head, mut cutoff) = match rest.rsplit_once('@') {
            Some((head, cutoff)) => (head, Some(cutoff)),
            None => (rest, None),
        };
        let (base, parameters) = match head.split_once('(') {
            Some((base, parameters)) => {
                let inner = parameters.strip_suffix(')').ok_or_else(|| bad("its bracket is not closed".into()))?;
                (base, inner)
            }
            None => (head, ""),
        };
        let mut kind = kind_of(base);
        if kind.is_none() && cutoff.is_none() {
            // trec_eval: "P_5", "iprec_at_recall_0.10"; ranx: "rbp.95".
            if let Some((head, value)) = base.rsplit_once('_') {
                (cutoff, kind) = (Some(value), kind_of(head));
            } else if let Some(digits) = folded(base).strip_prefix("rbp.") {
                let value =
                    format!("0.{digits}").parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
                kind = Some(Kind::Rbp(value.ok_or_else(|| bad("its p must be digits".into()))?));
            }
        }
        let kind = kind.ok_or_else(|| bad(format!("is no metric; metrics are {}", names().join(", "))))?;
        let mut metric = Self { kind, cutoff: None, rel, judged_only: false };
        for parameter in parameters.split(',').map(str::trim).filter(|parameter| !parameter.is_empty()) {
            let (key, value) =
                parameter.split_once('=').ok_or_else(|| bad(format!("{} must be key=value", quoted(parameter))))?;
            metric.set(key.trim(), value.trim().trim_matches(['\'', '"'])).map_err(bad)?;
        }
        if let Some(cutoff) = cutoff {
            metric.cut(cutoff).map_err(bad)?;
        } else if matches!(metric.kind, Kind::IPrec(_)) {
            return Err(bad("needs a recall, as in IPrec@0.1".into()));
        }
        if metric.rel.is_some() && matches!(metric.kind, Kind::Err | Kind::Judged | Kind::NumQ | Kind::NumRet) {
            return Err(bad("asks for no relevance, so that it has no rel".into()));
        }
        if matches!(metric.kind, Kind::Fe(_)) && metric.cutoff.is_none() {
            return Err(bad("needs a cut-off, as in Fe@5".into()));
        }
        Ok(metric)
    }
}

fn names() -> Vec<&'static str> {
    NAMES.iter().map(|(names, _)| names[0]).filter(|name| !name.contains('(')).collect()
}

impl Metric {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let number = || value.parse::<f64>().ok().filter(|value| value.is_finite());
        let within = |low: f64, high: f64| {
            let problem = format!("{key} must be a number from {low} to {high}, is {}", quoted(value));
            number().filter(|value| (low..=high).contains(value)).ok_or(problem)
        };
        match (key, &mut self.kind) {
            ("rel", _) => {
                self.rel = Some(number().ok_or_else(|| format!("rel must be a number, is {}", quoted(value)))?);
            }
            ("judged_only", _) => {
                self.judged_only = match value.to_lowercase().as_str() {
                    "true" => true,
                    "false" => false,
                    _ => return Err(format!("judged_only must be True or False, is {}", quoted(value))),
                };
            }
            ("dcg", Kind::Ndcg { exponential, .. }) => {
                *exponential = match value {
                    "log2" => false,
                    "exp-log2" => true,
                    _ => return Err(format!("dcg must be 'log2' or 'exp-log2', is {}", quoted(value))),
                };
            }
            ("ideal", Kind::Ndcg { within_list, .. }) => {
                *within_list = match value {
                    "judged" => false,
                    "list" => true,
                    _ => return Err(format!("ideal must be 'judged' or 'list', is {}", quoted(value))),
                };
            }
            ("beta", Kind::SetF(beta)) => *beta = within(0.0, 1e6)?,
            ("p", Kind::Rbp(p)) => *p = within(0.0, 1.0)?,
            ("recall", Kind::IPrec(recall)) => *recall = within(0.0, 1.0)?,
            ("alpha", Kind::F(alpha) | Kind::Fe(alpha) | Kind::T(alpha) | Kind::TPrime(alpha)) => {
                *alpha = within(0.0, 1.0)?;
            }
            ("beta", Kind::F(alpha) | Kind::Fe(alpha)) => *alpha = alpha_of_beta(within(0.0, 1e6)?),
            _ => return Err(format!("has no parameter {}", quoted(key))),
        }
        Ok(())
    }

    fn cut(&mut self, text: &str) -> Result<(), String> {
        if let Kind::IPrec(recall) = &mut self.kind {
            let value: f64 = text.parse().map_err(|_| format!("recall must be a number, is {}", quoted(text)))?;
            if !(0.0..=1.0).contains(&value) {
                return Err(format!("recall must be from 0 to 1, is {}", quoted(text)));
            }
            *recall = value;
            return Ok(());
        }
        let takes = !matches!(
            self.kind,
            Kind::Rprec
                | Kind::Bpref
                | Kind::InfAp
                | Kind::ElevenPoint
                | Kind::SetP
                | Kind::SetR
                | Kind::SetF(_)
                | Kind::SetAp
                | Kind::NumQ
                | Kind::NumRet
                | Kind::NumRel
                | Kind::NumRelRet
                | Kind::GmAp
        );
        if !takes {
            return Err("takes no cut-off".into());
        }
        match text.parse::<usize>() {
            Ok(k) if k >= 1 => self.cutoff = Some(k),
            _ => return Err(format!("the cut-off must be a whole number from 1, is {}", quoted(text))),
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<String> {
        let mut parameters = Vec::new();
        match self.kind {
            Kind::Ndcg { exponential, within_list } => {
                parameters.extend(exponential.then(|| "dcg='exp-log2'".to_owned()));
                parameters.extend(within_list.then(|| "ideal='list'".to_owned()));
            }
            Kind::SetF(beta) if (beta - 1.0).abs() > 0.0 => parameters.push(format!("beta={beta}")),
            Kind::Rbp(p) => parameters.push(format!("p={p}")),
            Kind::F(alpha) | Kind::Fe(alpha) | Kind::T(alpha) | Kind::TPrime(alpha) => {
                parameters.push(format!("alpha={alpha}"));
            }
            _ => {}
        }
        parameters.extend(self.rel.map(|rel| format!("rel={rel}")));
        parameters.extend(self.judged_only.then(|| "judged_only=True".to_owned()));
        parameters
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same =
            |(_, kind): &&(&[&'static str], Kind)| std::mem::discriminant(kind) == std::mem::discriminant(&self.kind);
        formatter.write_str(NAMES.iter().find(same).map_or("?", |(names, _)| names[0]))?;
        let parameters = self.parameters();
        if !parameters.is_empty() {
            write!(formatter, "({})", parameters.join(","))?;
        }
        match (self.kind, self.cutoff) {
            (Kind::IPrec(recall), _) => write!(formatter, "@{recall:?}"),
            (_, Some(k)) => write!(formatter, "@{k}"),
            (_, None) => Ok(()),
        }
    }
}
