//! The meaning of a model's outputs, from `id2label` in its `config.json`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The relevant fields of `config.json`.
#[derive(Debug, Deserialize)]
pub(super) struct ModelConfig {
    #[serde(default)]
    id2label: BTreeMap<String, String>,
    max_position_embeddings: Option<usize>,
}

/// Indices of the labels among the outputs. A two-class model has no contradiction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Labels {
    pub entailment: usize,
    pub neutral: usize,
    pub contradiction: Option<usize>,
}

impl Labels {
    /// `names` are the labels in the order of the outputs.
    pub fn recognise(names: &[String]) -> Result<Self, String> {
        let plain: Vec<String> = names.iter().map(|name| name.to_lowercase().replace([' ', '-'], "_")).collect();
        let index_of = |wanted: &[&str]| plain.iter().position(|name| wanted.contains(&name.as_str()));
        let entailment = index_of(&["entailment", "entail", "entails"]);
        let (neutral, contradiction) = match plain.len() {
            3 => (index_of(&["neutral"]), index_of(&["contradiction", "contradict", "contradicts"]).map(Some)),
            2 => (index_of(&["not_entailment", "non_entailment", "no_entailment"]), Some(None)),
            _ => (None, None),
        };
        let expected = "entailment, neutral and contradiction or entailment and not_entailment expected";
        let unknown = || format!("id2label: {names:?} given, {expected}");
        let ((entailment, neutral), contradiction) = entailment.zip(neutral).zip(contradiction).ok_or_else(unknown)?;
        Ok(Self { entailment, neutral, contradiction })
    }

    pub fn count(self) -> usize {
        2 + usize::from(self.contradiction.is_some())
    }
}

/// The labels of `id2label` in the order of the outputs.
pub(super) fn in_order(id2label: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let mut numbered = Vec::new();
    for (key, name) in id2label {
        let number: usize = key.parse().map_err(|_| format!("id2label: key {key:?} is not a number"))?;
        numbered.push((number, name.clone()));
    }
    numbered.sort();
    if numbered.iter().enumerate().any(|(index, (number, _))| index != *number) {
        return Err("id2label: the labels must be numbered from 0 without gaps".to_owned());
    }
    Ok(numbered.into_iter().map(|(_, name)| name).collect())
}

impl ModelConfig {
    pub fn labels(&self) -> Result<Labels, String> {
        Labels::recognise(&in_order(&self.id2label)?)
    }

    /// Longest input in tokens, from 16 to 512; 512 if the file does not state it.
    pub fn max_tokens(&self) -> usize {
        self.max_position_embeddings.unwrap_or(512).clamp(16, 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Labels, String> {
        serde_json::from_str::<ModelConfig>(text).unwrap().labels()
    }

    #[test]
    fn the_orders_of_published_models_are_recognised() {
        let usual = of(r#"{"id2label":{"0":"CONTRADICTION","1":"NEUTRAL","2":"ENTAILMENT"}}"#).unwrap();
        assert_eq!(usual, Labels { entailment: 2, neutral: 1, contradiction: Some(0) });
        let other = of(r#"{"id2label":{"0":"contradiction","1":"entailment","2":"neutral"}}"#).unwrap();
        assert_eq!((other.entailment, other.neutral, other.count()), (1, 2, 3));
        let two = of(r#"{"id2label":{"0":"entailment","1":"not_entailment"}}"#).unwrap();
        assert_eq!((two.contradiction, two.count()), (None, 2));
    }

    #[test]
    fn unknown_labels_are_an_error() {
        for text in [
            r#"{"id2label":{"0":"LABEL_0","1":"LABEL_1","2":"LABEL_2"}}"#,
            r#"{"id2label":{"0":"positive","1":"negative"}}"#,
            r#"{"id2label":{"1":"entailment","2":"neutral","3":"contradiction"}}"#,
            r#"{"id2label":{"x":"entailment"}}"#,
            "{}",
        ] {
            assert!(of(text).unwrap_err().contains("id2label"));
        }
    }
}
