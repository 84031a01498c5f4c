//! Chooses method and scoring generator from `model` and `rerankd_method` of a body.

use super::json::{Object, nearest};
use engine::Engine;
use engine::methods;
use engine::models::GeneratorModel;
use engine::types::{EngineError, MethodRef, Role};
use rag_metrics::quoted;

const METHOD: &str = "rerankd_method";

/// Names that a body may send as its model.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    /// Names of the generator that scores: the name in answers, and the configured name.
    pub scoring: Vec<String>,
    /// Names of the generator that answers, if another one scores; else empty. It wins if both generators share a name.
    pub answering: Vec<String>,
    /// True if a generator's file is not loaded yet. The file may state a name that is not listed here.
    pub loading: bool,
    /// Rerankers and embedding models, each with the method that asks it.
    pub beside: Vec<(String, MethodRef)>,
    /// The method of bodies that name none; `None` for the engine's default.
    pub configured: Option<MethodRef>,
    /// The model named in the path, for a body that names none.
    pub of_path: Option<String>,
}

/// infinity's client sends this if a request names no model.
const UNNAMED: &str = "default/not-specified";

/// The chosen method and generator.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Choice {
    /// `None` for the engine's default method.
    pub method: Option<MethodRef>,
    /// As [`engine::types::RerankRequest::scorer`].
    pub scorer: &'static str,
    /// Tells the caller that the named model is not one of this server's.
    pub warning: Option<String>,
}

impl Names {
    /// The names of a server's models.
    pub fn of(engine: &Engine, configured: Option<MethodRef>) -> Self {
        let generators = engine.models().generators();
        let names = |model: &GeneratorModel| {
            let stated = model.get().ok().map(|served| served.info.name.clone());
            let mut names: Vec<String> = stated.into_iter().chain([model.name().to_owned()]).collect();
            names.dedup();
            names
        };
        let (mut scoring, mut answering) = (generators.first().map(names).unwrap_or_default(), Vec::new());
        if let Some(scorer) = generators.get(1) {
            answering = std::mem::replace(&mut scoring, names(scorer));
            scoring.retain(|name| !answering.contains(name));
            // The names in RerankRequest.scorer.
            scoring.push(Role::Scorer.name().to_owned());
            answering.push(Role::Generator.name().to_owned());
        }
        let loading = generators.iter().any(|model| model.get().is_err());
        let asking = methods::all().filter(|method| method.passage_model().is_some());
        let beside = asking.filter_map(|method| Some((engine.reranker.model_of(method)?, method))).collect();
        Self { scoring, answering, loading, beside, configured, of_path: None }
    }

    /// The names of all models, each once.
    pub fn all(&self) -> Vec<&str> {
        let mut all = vec![self.scoring.first().map_or("", String::as_str)];
        let beside = self.beside.iter().map(|(name, _)| name);
        for name in self.answering.first().into_iter().chain(beside) {
            if !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        all
    }

    /// The model that a method asks: a reranker, an embedding model, the generator that answers, or the one
    /// that scores. The method's name if it asks no model or its model is not configured.
    fn stands_for(&self, method: Option<MethodRef>) -> &str {
        let method = method.or(self.configured);
        let itself = method.filter(|method| !method.asks_generator()).map(MethodRef::name);
        let beside = self.beside.iter().find(|(_, asking)| Some(*asking) == method).map(|(name, _)| name);
        let answering = method.filter(|method| method.reads_own_answer()).and_then(|_| self.answering.first());
        let model = beside.or(answering).map(String::as_str).or(itself);
        model.or_else(|| self.scoring.first().map(String::as_str)).unwrap_or("")
    }

    /// The model that a name stands for, consistent with [`Names::choose`].
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] for an unknown name while a model is still loading.
    pub fn root(&self, name: &str) -> Result<&str, EngineError> {
        let is = |names: &[String]| names.iter().any(|own| own == name);
        if let Some((own, _)) = self.beside.iter().find(|(own, _)| own == name) {
            return Ok(own);
        }
        let generator = [&self.scoring, &self.answering].into_iter().find(|names| is(names));
        if let Some(own) = generator.and_then(|names| names.first()) {
            return Ok(own);
        }
        match methods::find(name) {
            None if self.loading => Err(EngineError::Unavailable),
            method => Ok(self.stands_for(method)),
        }
    }

    /// Chooses method and generator. The name of a method chooses this method, for clients that can only choose a model.
    /// Other names that no model has are accepted with a warning, because some clients always send a fixed name.
    ///
    /// # Errors
    /// A method that does not ask the named model is invalid: an answer never names a model that did not run.
    /// [`EngineError::Unavailable`] for an unknown name while a model is still loading, because its file may state the
    /// name.
    pub fn choose(&self, object: &Object<'_, '_>) -> Result<Choice, EngineError> {
        let given = |field: &str| Ok::<_, EngineError>(object.word(field)?.filter(|name| !name.is_empty()));
        let configured = self.configured;
        let named = given(METHOD)?.map(|name| methods::find(&name).ok_or_else(|| unknown_method(&name))).transpose()?;
        let model = given("model")?.or_else(|| self.of_path.clone());
        let model = model.filter(|name| name != UNNAMED);
        let Some(model) = model else { return Ok(Choice { method: named.or(configured), ..Choice::default() }) };
        let is = |names: &[String]| names.contains(&model);
        if let Some((_, own)) = self.beside.iter().find(|(name, _)| *name == model) {
            let other = named.filter(|named| named != own);
            return match other {
                Some(other) => Err(invalid(format!(
                    "{} does not ask this model: leave it out, or take {}",
                    other.name(),
                    own.name()
                ))),
                None => Ok(Choice { method: Some(*own), ..Choice::default() }),
            };
        }
        if !is(&self.scoring) && !is(&self.answering) {
            let own = methods::find(&model);
            if own.is_none() && self.loading {
                return Err(EngineError::Unavailable);
            }
            let method = named.or(own).or(configured);
            let warning = own.is_none().then(|| unknown_name_warning(&model, self.stands_for(method)));
            return Ok(Choice { method, warning, ..Choice::default() });
        }
        // If another generator scores, the name selects the answering one; methods that attribute its own answer ask it
        // anyway.
        let scores = is(&self.scoring);
        let asks_another = |method: &MethodRef| {
            method.passage_model().is_some() || (scores && !self.answering.is_empty() && method.reads_own_answer())
        };
        if let Some(other) = named.filter(asks_another) {
            return Err(invalid(format!("{} does not ask this model", other.name())));
        }
        let method = named.or(configured.filter(|method| !asks_another(method)));
        Ok(Choice { method, scorer: if scores { "" } else { "generator" }, warning: None })
    }
}

/// The warning for the name of a model that is not served.
fn unknown_name_warning(asked: &str, ranked: &str) -> String {
    let asked = quoted(asked);
    format!("model: {asked} is not a model of this server; {ranked} ranked instead; /v1/models lists the names")
}

fn unknown_method(name: &str) -> EngineError {
    let nearest = nearest(name, methods::all().map(MethodRef::name));
    let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
    invalid(format!("unknown method {}{hint}", quoted(name)))
}

fn invalid(problem: String) -> EngineError {
    EngineError::invalid(METHOD, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Names {
            scoring: list(&["small", "small.gguf"]),
            answering: list(&["large"]),
            beside: vec![("bge".into(), methods::find("cross-encoder").unwrap())],
            loading: false,
            configured: None,
            of_path: None,
        }
    }

    fn chosen(body: &str, configured: &str) -> Result<(&'static str, &'static str), String> {
        let object = Object::read(body, "", &["model", METHOD]).unwrap();
        let names = Names { configured: methods::find(configured), ..names() };
        match names.choose(&object) {
            Ok(Choice { method, scorer, .. }) => Ok((method.map_or("", |method| method.name()), scorer)),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_model_chooses_a_method_that_asks_it() {
        let rows = [
            ("{}", "moi", Ok(("moi", ""))),
            (r#"{"model": "", "rerankd_method": ""}"#, "moi", Ok(("moi", ""))),
            (r#"{"model": "rerank-v3.5"}"#, "cross-encoder", Ok(("cross-encoder", ""))),
            (r#"{"model": "rerank-v3.5", "rerankd_method": "moi"}"#, "cross-encoder", Ok(("moi", ""))),
            (r#"{"model": "bge"}"#, "moi", Ok(("cross-encoder", ""))),
            (r#"{"model": "bge", "rerankd_method": "cross-encoder"}"#, "", Ok(("cross-encoder", ""))),
            (r#"{"model": "small"}"#, "moi", Ok(("moi", ""))),
            (r#"{"model": "small.gguf", "rerankd_method": "retriever"}"#, "", Ok(("retriever", ""))),
            // A method's name, for clients that can only choose a model.
            (r#"{"model": "query-generation"}"#, "moi", Ok(("query-generation", ""))),
            (r#"{"model": "moi", "rerankd_method": "embedding"}"#, "", Ok(("embedding", ""))),
            // The configured method asks another model than the named one.
            (r#"{"model": "small"}"#, "cross-encoder", Ok(("", ""))),
            (r#"{"model": "small"}"#, "answer-likelihood", Ok(("", ""))),
            (r#"{"model": "large"}"#, "answer-likelihood", Ok(("answer-likelihood", "generator"))),
            (r#"{"model": "large", "rerankd_method": "moi"}"#, "", Ok(("moi", "generator"))),
        ];
        for (body, configured, expected) in rows {
            assert_eq!(chosen(body, configured), expected, "{body}");
        }
        let refused = [
            (
                r#"{"model": "bge", "rerankd_method": "moi"}"#,
                "rerankd_method: moi does not ask this model: leave it out",
            ),
            (r#"{"model": "small", "rerankd_method": "cross-encoder"}"#, "rerankd_method: cross-encoder does not ask"),
            (r#"{"model": "small", "rerankd_method": "leave-one-out"}"#, "rerankd_method: leave-one-out does not ask"),
            (r#"{"rerankd_method": "guess"}"#, "rerankd_method: unknown method \"guess\""),
            (
                r#"{"rerankd_method": "embeding"}"#,
                "rerankd_method: unknown method \"embeding\"; did you mean embedding?",
            ),
        ];
        for (body, problem) in refused {
            let found = chosen(body, "").unwrap_err();
            assert!(found.starts_with(problem), "{body}: {found}");
        }
        let loading = Names { loading: true, ..names() };
        let object = Object::read(r#"{"model": "large.gguf"}"#, "", &["model", METHOD]).unwrap();
        let refused = loading.choose(&object).unwrap_err();
        assert_eq!(refused, EngineError::Unavailable, "its file may state this name");
    }

    #[test]
    fn the_name_that_infinity_s_client_sends_without_a_model_has_no_warning() {
        let choice = |body: &str| {
            let object = Object::read(body, "", &["model", METHOD]).unwrap();
            names().choose(&object).unwrap().warning
        };
        assert_eq!(choice(r#"{"model": "default/not-specified"}"#), None);
        assert_eq!(chosen(r#"{"model": "default/not-specified"}"#, "moi"), Ok(("moi", "")));
        let warning = choice(r#"{"model": "gpt"}"#).unwrap();
        assert!(warning.starts_with("model: \"gpt\" is not a model of this server; small ranked instead"), "{warning}");
    }

    #[test]
    fn names_are_listed_once_with_their_model() {
        let mut names = names();
        assert_eq!(names.all(), ["small", "large", "bge"]);
        let own = (names.root("small.gguf"), names.root("large"), names.root("bge"));
        assert_eq!(own, (Ok("small"), Ok("large"), Ok("bge")));
        // A method stands for the model that it asks, or for itself if it asks none or its model is not configured.
        let methods = (names.root("cross-encoder"), names.root("retriever"), names.root("embedding"));
        assert_eq!(methods, (Ok("bge"), Ok("retriever"), Ok("embedding")));
        // Any other name stands for the model of the configured method.
        for (configured, root) in [("cross-encoder", "bge"), ("answer-likelihood", "large"), ("moi", "small")] {
            names.configured = methods::find(configured);
            assert_eq!(names.root("rerank-v3.5"), Ok(root), "{configured}");
        }
        names.loading = true;
        assert_eq!(names.root("rerank-v3.5"), Err(EngineError::Unavailable));
    }
}
