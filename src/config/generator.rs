//! The sections `generator` and `scorer`: the model that scores and samples prompts, one that scores in its place, and their
//! adapters.

use std::path::PathBuf;

use serde::Deserialize;

use engine::prompt::{Frame, YesNoPrompt};
use models::llama::{self, CacheType};

/// Largest absolute value of an adapter's scale.
const MOST_SCALE: f32 = 100.0;

/// The prompt of METHOD_YES_NO by the names of the model.
const AUTO: &str = "auto";

/// A generator and its load settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Generator {
    /// Catalogue name, or path of a GGUF file.
    pub model: String,
    /// The adapter that is applied to it.
    pub adapter: Option<Adapter>,
    /// Number of cache cells (tokens); 0 for one that suits what computes.
    pub cells: usize,
    /// Maximum number of tokens per step; 0 for one that suits what computes.
    pub batch: usize,
    /// Threads per step; at least 1.
    pub threads: usize,
    /// Number of layers on the accelerator; values above the model's count mean all.
    pub gpu_layers: u32,
    /// Use the fused attention kernel.
    pub flash_attention: bool,
    /// Numbers in the cells of the cache.
    pub cache_type: CacheType,
    /// What stands around the user's message of a prompt.
    pub frame: Frame,
    /// The prompt of the method `yes-no`; `None` for that of the model by its names.
    pub yes_no_prompt: Option<YesNoPrompt>,
    /// Maximum size of a re-encoded file in bytes; `None` disables re-encoding.
    pub reencode: Option<u64>,
}

/// A LoRA adapter of a generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Catalogue name, or path of a GGUF file.
    pub file: String,
    /// The SHA-256 that the file must have; `None` for any.
    pub sha256: Option<String>,
    /// Factor of what it adds.
    pub scale: f32,
}

impl Generator {
    /// llama.cpp settings for the model file at `path`, without an adapter.
    #[must_use]
    pub fn settings(&self, path: PathBuf) -> llama::Settings {
        llama::Settings {
            path,
            cells: self.cells,
            batch: self.batch,
            threads: self.threads,
            gpu_layers: self.gpu_layers,
            flash_attention: self.flash_attention,
            cache_type: self.cache_type,
            sha256: String::new(),
            adapter: None,
        }
    }
}

/// The keys that say how a generator is loaded.
#[derive(Debug, Deserialize)]
pub(super) struct Section {
    pub model: String,
    adapter: String,
    adapter_sha256: String,
    adapter_scale: String,
    context_cells: usize,
    batch: usize,
    threads: usize,
    gpu_layers: u64,
    flash_attention: bool,
    cache_type: String,
    chat_template: bool,
    jinja: bool,
    yes_no_prompt: String,
}

impl Section {
    /// Appends a fault for each value that is wrong. `section` is its name; threads of 0 become `threads`.
    pub fn validate(self, section: &str, threads: usize, reencode: Option<u64>, faults: &mut Vec<String>) -> Generator {
        let bounds = [
            ("context_cells", self.context_cells, 256, 1 << 24),
            ("batch", self.batch, 16, 1 << 16),
            ("threads", self.threads, 1, 1024),
        ];
        for (key, value, least, most) in bounds {
            if value != 0 && (value < least || value > most) {
                faults.push(format!("{section}.{key}: must be 0 or between {least} and {most}, is {value}"));
            }
        }
        let layers = u32::try_from(self.gpu_layers);
        if layers.is_err() {
            faults.push(format!("{section}.gpu_layers: must be at most {}, is {}", u32::MAX, self.gpu_layers));
        }
        if self.context_cells != 0 && self.batch > self.context_cells {
            faults.push(format!("{section}.batch: must not exceed {section}.context_cells"));
        }
        let frame = match (self.chat_template, self.jinja) {
            (true, true) => Frame::Jinja,
            (true, false) => Frame::Chat,
            (false, jinja) => {
                if jinja {
                    faults.push(format!("{section}.jinja: needs {section}.chat_template=true"));
                }
                Frame::Plain
            }
        };
        Generator {
            adapter: self.adapter(section, faults),
            cache_type: self.cache_type(section, faults),
            yes_no_prompt: self.yes_no_prompt(section, faults),
            model: self.model,
            cells: self.context_cells,
            batch: self.batch,
            threads: if self.threads == 0 { threads } else { self.threads },
            gpu_layers: layers.unwrap_or(u32::MAX),
            flash_attention: self.flash_attention,
            frame,
            reencode,
        }
    }

    fn cache_type(&self, section: &str, faults: &mut Vec<String>) -> CacheType {
        let Some(cache_type) = CacheType::ALL.into_iter().find(|known| known.name() == self.cache_type) else {
            faults.push(format!("{section}.cache_type: must be f16, bf16 or q8_0, is {:?}", self.cache_type));
            return CacheType::default();
        };
        if cache_type == CacheType::Q8_0 && !self.flash_attention {
            faults.push(format!("{section}.cache_type: q8_0 needs {section}.flash_attention"));
        }
        cache_type
    }

    fn yes_no_prompt(&self, section: &str, faults: &mut Vec<String>) -> Option<YesNoPrompt> {
        let found = YesNoPrompt::find(&self.yes_no_prompt);
        if found.is_none() && self.yes_no_prompt != AUTO {
            let names = YesNoPrompt::ALL.map(YesNoPrompt::name).join(", ");
            let given = &self.yes_no_prompt;
            faults.push(format!("{section}.yes_no_prompt: must be {AUTO} or one of {names}, is {given:?}"));
        }
        found
    }

    fn adapter(&self, section: &str, faults: &mut Vec<String>) -> Option<Adapter> {
        let scale = self.adapter_scale.trim().parse::<f32>().ok().filter(|scale| scale.abs() <= MOST_SCALE);
        if scale.is_none() {
            let bounds = format!("must be a number between -{MOST_SCALE} and {MOST_SCALE}");
            faults.push(format!("{section}.adapter_scale: {bounds}, is {:?}", self.adapter_scale));
        }
        let sha256 = self.adapter_sha256.to_ascii_lowercase();
        let is_hash = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !sha256.is_empty() && !is_hash {
            let found = &self.adapter_sha256;
            faults.push(format!("{section}.adapter_sha256: must be 64 hexadecimal digits, is {found:?}"));
        }
        if self.adapter.is_empty() {
            if !sha256.is_empty() {
                faults.push(format!("{section}.adapter_sha256: must be empty where {section}.adapter is empty"));
            }
            if scale.is_some_and(|scale| scale.to_bits() != 1.0_f32.to_bits()) {
                let found = &self.adapter_scale;
                faults
                    .push(format!("{section}.adapter_scale: must be 1 where {section}.adapter is empty, is {found:?}"));
            }
            return None;
        }
        let sha256 = Some(sha256).filter(|sha256| !sha256.is_empty());
        Some(Adapter { file: self.adapter.clone(), sha256, scale: scale? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn load(flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::from_parts(None, &[], &flags).map_err(|error| error.faults)
    }

    #[test]
    fn a_scorer_is_off_until_it_is_named_and_has_keys_of_its_own() {
        assert_eq!(load(&[]).unwrap().scorer, None);
        let flags = [("scorer.model", "x.gguf"), ("generator.threads", "3"), ("scorer.batch", "64")];
        let config = load(&flags).unwrap();
        let scorer = config.scorer.unwrap();
        assert_eq!((&*scorer.model, scorer.threads, scorer.batch, config.generator.batch), ("x.gguf", 3, 64, 0));
        let faults =
            load(&[("scorer.model", "x.gguf"), ("scorer.batch", "1"), ("scorer.cache_type", "f64")]).unwrap_err();
        assert_eq!(faults[0], "scorer.batch: must be 0 or between 16 and 65536, is 1");
        assert!(faults[1].starts_with("scorer.cache_type: must be"), "{faults:?}");
        let itself = [("scorer.model", "smollm2-135m-instruct")];
        assert!(load(&itself).unwrap_err()[0].starts_with("scorer.model: is the generator itself"));
        assert!(load(&[itself[0], ("scorer.adapter", "a.gguf")]).is_ok());
    }

    #[test]
    fn sizes_are_left_open_or_bounded_and_fit_each_other() {
        let sizes = |flags: &[(&str, &str)]| load(flags).map(|config| (config.generator.cells, config.generator.batch));
        assert_eq!(sizes(&[]), Ok((0, 0)));
        assert_eq!(sizes(&[("generator.batch", "1024")]), Ok((0, 1024)));
        assert_eq!(sizes(&[("generator.context_cells", "256")]), Ok((256, 0)));
        let faults = sizes(&[("generator.context_cells", "255"), ("generator.batch", "15")]).unwrap_err();
        let expected = [
            "context_cells: must be 0 or between 256 and 16777216, is 255",
            "batch: must be 0 or between 16 and 65536, is 15",
        ];
        assert_eq!(faults, expected.map(|fault| format!("generator.{fault}")));
        let faults = sizes(&[("generator.context_cells", "256"), ("generator.batch", "257")]).unwrap_err();
        assert_eq!(faults, ["generator.batch: must not exceed generator.context_cells"]);
    }

    #[test]
    fn a_rerankers_prompt_is_named_or_left_to_the_file() {
        assert_eq!(load(&[]).unwrap().generator.yes_no_prompt, None);
        let config = load(&[("scorer.model", "x.gguf"), ("scorer.yes_no_prompt", "bge-gemma")]).unwrap();
        assert_eq!(config.scorer.unwrap().yes_no_prompt, Some(YesNoPrompt::BgeGemma));
        let faults = load(&[("generator.yes_no_prompt", "gemma")]).unwrap_err();
        let expected = "generator.yes_no_prompt: must be auto or one of generic, qwen3, bge-gemma, mxbai-base, mxbai-large, is \"gemma\"";
        assert_eq!(faults, [expected]);
    }

    #[test]
    fn an_adapter_has_a_file_a_hash_and_a_finite_scale() {
        assert_eq!(load(&[]).unwrap().generator.adapter, None);
        let hash = "AB".repeat(32);
        let flags =
            [("generator.adapter", "a.gguf"), ("generator.adapter_sha256", &hash), ("generator.adapter_scale", "0.5")];
        let adapter = load(&flags).unwrap().generator.adapter.unwrap();
        assert_eq!((&*adapter.file, adapter.scale.to_bits()), ("a.gguf", 0.5_f32.to_bits()));
        assert_eq!(adapter.sha256, Some("ab".repeat(32)));
        for scale in ["NaN", "inf", "1e39", "-101", "", "much"] {
            let faults = load(&[("generator.adapter", "a.gguf"), ("generator.adapter_scale", scale)]).unwrap_err();
            assert!(faults[0].starts_with("generator.adapter_scale: must be a number"), "{faults:?}");
        }
        let faults = load(&[("generator.adapter", "a.gguf"), ("generator.adapter_sha256", "ab")]).unwrap_err();
        assert_eq!(faults, ["generator.adapter_sha256: must be 64 hexadecimal digits, is \"ab\""]);
        let unused = load(&[("scorer.adapter", "a.gguf")]).unwrap_err();
        assert_eq!(unused, ["scorer.adapter: must be empty where scorer.model is empty"]);
        let alone = load(&[("generator.adapter_sha256", &hash)]).unwrap_err();
        assert_eq!(alone, ["generator.adapter_sha256: must be empty where generator.adapter is empty"]);
        let scale = load(&[("generator.adapter_scale", "0.5")]).unwrap_err();
        assert_eq!(scale, ["generator.adapter_scale: must be 1 where generator.adapter is empty, is \"0.5\""]);
        assert!(load(&[("generator.adapter_scale", "1.0")]).is_ok());
        let scorers = [("scorer.model", "x.gguf"), ("scorer.adapter_scale", "0")];
        let scorers = load(&scorers).unwrap_err();
        assert_eq!(scorers, ["scorer.adapter_scale: must be 1 where scorer.adapter is empty, is \"0\""]);
    }
}
