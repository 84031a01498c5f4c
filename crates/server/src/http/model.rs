//! Chooses method and scoring generator from `model` and `rerankd_method` of a body.

use super::json::Object;
use super::problem::Problem;
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
    /// Names that existing clients send, for the configured method or a specific one. [`ANY`] matches every name.
    pub aliases: Vec<(String, Option<MethodRef>)>,
    /// Rerankers and embedding models, each with the method that asks it.
    pub beside: Vec<(String, MethodRef)>,
    /// The method of bodies that name none; `None` for the engine's default.
    pub configured: Option<MethodRef>,
    /// The model named in the path, for a body that names none.
    pub of_path: Option<String>,
}

/// The alias for all names that no model has: some clients always send a fixed name.
const ANY: &str = "*";

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
    /// The names of a server's models and these `aliases`.
    pub fn of(engine: &Engine, aliases: &[(String, Option<MethodRef>)], configured: Option<MethodRef>) -> Self {
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
        Self { scoring, answering, loading, aliases: aliases.to_vec(), beside, configured, of_path: None }
    }

    /// All names, each once, with the name of the model that it stands for.
    pub fn all(&self) -> Vec<(&str, &str)> {
        let own = self.scoring.first().map_or("", String::as_str);
        let answering = self.answering.first().map_or("", String::as_str);
        let mut all = vec![(own, own)];
        // `choose` looks up aliases last, so a model's name is never an alias of another model.
        let is_own =
            |name: &str| self.answering.iter().chain(self.beside.iter().map(|(own, _)| own)).any(|own| own == name);
        let aliases = self.aliases.iter().map(|(name, method)| (name.as_str(), self.stands_for(*method)));
        let more = aliases
            .filter(|(name, _)| *name != ANY && !is_own(name))
            .chain((!answering.is_empty()).then_some((answering, answering)))
            .chain(self.beside.iter().map(|(name, _)| (name.as_str(), name.as_str())));
        for (name, root) in more {
            if !all.iter().any(|(other, _)| *other == name) {
                all.push((name, root));
            }
        }
        all
    }

    /// The model that an alias's method asks: a reranker, an embedding model, the generator that answers, or the one
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
    /// [`Problem::NoModel`]; [`EngineError::Unavailable`] while a model is still loading.
    pub fn root(&self, name: &str) -> Result<&str, Problem> {
        let is = |names: &[String]| names.iter().any(|own| own == name);
        if let Some((own, _)) = self.beside.iter().find(|(own, _)| own == name) {
            return Ok(own);
        }
        let generator = [&self.scoring, &self.answering].into_iter().find(|names| is(names));
        if let Some(own) = generator.and_then(|names| names.first()) {
            return Ok(own);
        }
        match self.alias(name) {
            Some((method, _)) => Ok(self.stands_for(method)),
            None if self.loading => Err(EngineError::Unavailable.into()),
            None => Err(self.unknown(name.to_owned())),
        }
    }

    /// The method of an alias, and true if the alias has exactly this name, which [`ANY`] has not. The name of a method
    /// is an alias for it. [`ANY`] does not apply while a file is loading, because the file may state the name.
    fn alias(&self, name: &str) -> Option<(Option<MethodRef>, bool)> {
        let of = |name: &str| self.aliases.iter().find(|(alias, _)| alias == name).map(|(_, method)| *method);
        let itself = || methods::find(name).map(Some);
        let any = || of(ANY).filter(|_| !self.loading);
        of(name).or_else(itself).map(|method| (method, true)).or_else(|| any().map(|method| (method, false)))
    }

    /// Chooses method and generator.
    ///
    /// # Errors
    /// [`Problem::NoModel`] for a model that is not served: an answer never names a model that did not run. For the
    /// same reason, a method that does not ask the named model is invalid. [`EngineError::Unavailable`] while a model
    /// is still loading.
    pub fn choose(&self, object: &Object<'_, '_>) -> Result<Choice, Problem> {
        let given = |field: &str| Ok::<_, EngineError>(object.word(field)?.filter(|name| !name.is_empty()));
        let configured = self.configured;
        let named = given(METHOD)?
            .map(|name| methods::find(&name).ok_or_else(|| invalid(format!("unknown method {}", quoted(&name)))))
            .transpose()?;
        let model = given("model")?.or_else(|| self.of_path.clone());
        let model = model.filter(|name| name != UNNAMED || self.alias(UNNAMED).is_some());
        let Some(model) = model else { return Ok(Choice { method: named.or(configured), ..Choice::default() }) };
        let is = |names: &[String]| names.contains(&model);
        if let Some((_, own)) = self.beside.iter().find(|(name, _)| *name == model) {
            let other = named.filter(|named| named != own);
            return match other {
                Some(other) => Err(invalid(format!(
                    "{} does not ask this model: leave it out, or take {}",
                    other.name(),
                    own.name()
                ))
                .into()),
                None => Ok(Choice { method: Some(*own), ..Choice::default() }),
            };
        }
        if !is(&self.scoring) && !is(&self.answering) {
            if let Some((own, is_own)) = self.alias(&model) {
                let method = named.or(own).or(configured);
                let is_unknown = !is_own && model != UNNAMED;
                let warning = is_unknown.then(|| unknown_name_warning(&model, self.stands_for(method)));
                return Ok(Choice { method, warning, ..Choice::default() });
            }
            return Err(if self.loading { EngineError::Unavailable.into() } else { self.unknown(model) });
        }
        // If another generator scores, the name selects the answering one; methods that attribute its own answer ask it
        // anyway.
        let scores = is(&self.scoring);
        let asks_another = |method: &MethodRef| {
            method.passage_model().is_some() || (scores && !self.answering.is_empty() && method.reads_own_answer())
        };
        if let Some(other) = named.filter(asks_another) {
            return Err(invalid(format!("{} does not ask this model", other.name())).into());
        }
        let method = named.or(configured.filter(|method| !asks_another(method)));
        Ok(Choice { method, scorer: if scores { "" } else { "generator" }, warning: None })
    }

    /// The error for an unknown name.
    fn unknown(&self, asked: String) -> Problem {
        let served = self.all().into_iter().map(|(name, _)| name.to_owned()).collect();
        Problem::NoModel { asked, served }
    }
}

/// The warning for a name that only [`ANY`] matches.
fn unknown_name_warning(asked: &str, ranked: &str) -> String {
    let asked = quoted(asked);
    format!(
        "model: {asked} is not a model of this server; {ranked} ranked instead; http.model_aliases can list the name"
    )
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
            aliases: vec![("rerank-v3.5".into(), None), ("fast".into(), methods::find("embedding"))],
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
            Err(Problem::NoModel { asked, served }) => Err(format!("no model {asked} of {}", served.join(", "))),
            Err(Problem::Engine(error)) => Err(error.to_string()),
            Err(other) => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_model_chooses_a_method_that_asks_it() {
        let rows = [
            ("{}", "moi", Ok(("moi", ""))),
            (r#"{"model": "", "rerankd_method": ""}"#, "moi", Ok(("moi", ""))),
            (r#"{"model": "rerank-v3.5"}"#, "cross-encoder", Ok(("cross-encoder", ""))),
            (r#"{"model": "fast"}"#, "cross-encoder", Ok(("embedding", ""))),
            (r#"{"model": "fast", "rerankd_method": "moi"}"#, "cross-encoder", Ok(("moi", ""))),
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
            (r#"{"model": "gpt"}"#, "no model gpt of small, rerank-v3.5, fast, large, bge"),
            (
                r#"{"model": "bge", "rerankd_method": "moi"}"#,
                "rerankd_method: moi does not ask this model: leave it out",
            ),
            (r#"{"model": "small", "rerankd_method": "cross-encoder"}"#, "rerankd_method: cross-encoder does not ask"),
            (r#"{"model": "small", "rerankd_method": "leave-one-out"}"#, "rerankd_method: leave-one-out does not ask"),
            (r#"{"rerankd_method": "guess"}"#, "rerankd_method: unknown method"),
        ];
        for (body, problem) in refused {
            let found = chosen(body, "").unwrap_err();
            assert!(found.starts_with(problem), "{body}: {found}");
        }
        let loading = Names { loading: true, ..names() };
        let object = Object::read(r#"{"model": "large.gguf"}"#, "", &["model", METHOD]).unwrap();
        let refused = loading.choose(&object).unwrap_err();
        assert_eq!(refused, Problem::Engine(EngineError::Unavailable), "its file may state this name");
    }

    #[test]
    fn any_name_may_be_an_alias_and_a_models_own_name_is_none() {
        let mut names = names();
        names.aliases.push((ANY.to_owned(), None));
        names.configured = methods::find("moi");
        assert!(names.all().iter().all(|(name, _)| *name != ANY));
        let chosen = |names: &Names, body: &str| {
            let object = Object::read(body, "", &["model", METHOD]).unwrap();
            names.choose(&object).map(|choice| choice.method.map(MethodRef::name))
        };
        assert_eq!(chosen(&names, r#"{"model": "reranker"}"#), Ok(Some("moi")));
        assert_eq!(chosen(&names, r#"{"model": "bge"}"#), Ok(Some("cross-encoder")));
        names.loading = true;
        assert_eq!(chosen(&names, r#"{"model": "reranker"}"#), Err(EngineError::Unavailable.into()));
    }

    #[test]
    fn the_model_that_infinity_s_client_always_sends_is_none() {
        let body = r#"{"model": "default/not-specified"}"#;
        assert_eq!(chosen(body, "moi"), Ok(("moi", "")));
        for alias in [ANY, UNNAMED] {
            let names = Names { aliases: vec![(alias.into(), methods::find("yes-no"))], ..names() };
            let choice = names.choose(&Object::read(body, "", &["model", METHOD]).unwrap()).unwrap();
            assert_eq!(choice.method.map(MethodRef::name), Some("yes-no"), "{alias}");
        }
    }

    #[test]
    fn names_are_listed_once_with_their_model() {
        let mut names = names();
        names.aliases.extend(["small", "large", "bge"].map(|name| (name.to_owned(), None)));
        let aliases = [("rerank-v3.5", "small"), ("fast", "embedding")];
        let all = [&[("small", "small")], &aliases[..], &[("large", "large"), ("bge", "bge")]].concat();
        assert_eq!(names.all(), all);
        // The alias of a reranker's or embedding model's method stands for that model.
        names.aliases.push(("cheap".into(), methods::find("cross-encoder")));
        assert_eq!((names.root("cheap"), names.root("rerank-v3.5")), (Ok("bge"), Ok("small")));
        // A method without a model, or whose model is not configured, stands for itself.
        names.aliases.extend(
            [("as-given", "retriever"), ("near", "embedding")]
                .map(|(name, method)| (name.to_owned(), methods::find(method))),
        );
        assert_eq!((names.root("as-given"), names.root("near")), (Ok("retriever"), Ok("embedding")));
        assert_eq!(
            (names.root("small.gguf"), names.root("large"), names.root("bge")),
            (Ok("small"), Ok("large"), Ok("bge"))
        );
        assert!(matches!(names.root("gpt"), Err(Problem::NoModel { .. })));
        // An alias without a method stands for the model of the configured method.
        for (configured, root) in [("cross-encoder", "bge"), ("answer-likelihood", "large"), ("moi", "small")] {
            names.configured = methods::find(configured);
            assert_eq!(names.root("rerank-v3.5"), Ok(root), "{configured}");
        }
    }
}
