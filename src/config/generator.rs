//! The sections `generator` and `scorer`: the model that scores and samples prompts, an optional model that scores
//! instead, and their adapters.

use std::path::PathBuf;

use super::keys::Keys;
use models::llama::{self, CacheType};
use prefix_scheduler::model::{PromptFormat, YesNoPrompt};

/// More layers than a model has.
const ALL_LAYERS: u32 = 999;

/// Largest absolute value of an adapter's scale.
const MOST_SCALE: f32 = 100.0;

/// Chat templates by their values in the configuration, the default first.
pub const FRAMES: [(&str, PromptFormat); 3] =
    [("auto", PromptFormat::Chat), ("jinja", PromptFormat::Jinja), ("off", PromptFormat::Plain)];

/// A generator and its load settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Generator {
    /// Catalogue name, or path of a GGUF file.
    pub model: String,
    /// The adapter that is applied to it.
    pub adapter: Option<Adapter>,
    /// Size of the KV cache in tokens; 0 for one that suits the device.
    pub cells: usize,
    /// Maximum number of tokens per step; 0 for one that suits the device.
    pub batch: usize,
    /// Threads per step; at least 1.
    pub threads: usize,
    /// Number of layers on the accelerator; values above the model's count mean all.
    pub gpu_layers: u32,
    /// Number type of the KV cache.
    pub cache_type: CacheType,
    /// Format of prompts.
    pub frame: PromptFormat,
    /// The prompt of the method `yes-no`; `None` to choose it by the model's names.
    pub yes_no_prompt: Option<YesNoPrompt>,
    /// Maximum size of a re-encoded file in bytes; `None` disables re-encoding.
    pub reencode: Option<u64>,
}

/// A LoRA adapter of a generator.
#[derive(Debug, Clone, PartialEq)]
pub struct Adapter {
    /// Catalogue name, or path of a GGUF file.
    pub file: String,
    /// Factor of the adapter's contribution.
    pub scale: f32,
}

impl Generator {
    /// llama.cpp settings for the model file at `path`, without an adapter.
    pub fn settings(&self, path: PathBuf) -> llama::Settings {
        llama::Settings {
            path,
            cells: self.cells,
            batch: self.batch,
            threads: self.threads,
            gpu_layers: self.gpu_layers,
            cache_type: self.cache_type,
            sha256: String::new(),
            adapter: None,
        }
    }

    /// The model of `[generator]`.
    pub(super) fn read(keys: &mut Keys) -> Self {
        let model = keys.text("generator.model");
        Self::of_section("generator", model, keys)
    }

    /// The model of `[scorer]`; `None` if the generator scores.
    pub(super) fn read_scorer(generator: &Self, keys: &mut Keys) -> Option<Self> {
        let model = keys.text_or("scorer.model", "off");
        let is_on = model.is_some();
        let scorer = Self::of_section("scorer", model.unwrap_or_default(), keys);
        if !is_on && scorer.adapter.is_some() {
            keys.fault("scorer.adapter", "needs scorer.model, which is \"off\"");
        }
        if is_on && scorer.model == generator.model && scorer.adapter == generator.adapter {
            // Both would store their calibrations and profiles in the same files.
            keys.fault("scorer.model", "is the generator itself: set it to \"off\", or give it another adapter");
        }
        Some(scorer).filter(|_| is_on)
    }

    fn of_section(section: &str, model: String, keys: &mut Keys) -> Self {
        let key = |name: &str| format!("{section}.{name}");
        let cells = keys.number_or(&key("context_tokens"), "auto", 256..=1 << 24);
        let batch = keys.number_or(&key("batch"), "auto", 16..=1 << 16);
        if cells.zip(batch).is_some_and(|(cells, batch)| batch > cells) {
            let [batch, cells] = ["batch", "context_tokens"].map(|name| keys.source(&key(name)));
            keys.fault(&batch, format!("must not exceed {cells}"));
        }
        let prompts = YesNoPrompt::ALL.map(YesNoPrompt::name).join(", ");
        let prompts = format!("one of {prompts}");
        let reencode = keys.number_or(&key("reencode_megabytes"), "off", 1..=1_u64 << 32);
        Self {
            model,
            adapter: adapter(section, keys),
            cells: cells.unwrap_or(0),
            batch: batch.unwrap_or(0),
            threads: keys.number_or(&key("threads"), "auto", 1..=1024).unwrap_or_else(super::cores::usable),
            gpu_layers: keys.number_or(&key("gpu_layers"), "all", 0..=u32::MAX).unwrap_or(ALL_LAYERS),
            cache_type: keys.choice(&key("cache_type"), &CacheType::ALL.map(|known| (known.name(), known))),
            frame: keys.choice(&key("chat_template"), &FRAMES),
            yes_no_prompt: keys.parsed_or(&key("yes_no_prompt"), "auto", &prompts, YesNoPrompt::find),
            reencode: reencode.map(|megabytes| megabytes * 1_000_000),
        }
    }
}

fn adapter(section: &str, keys: &mut Keys) -> Option<Adapter> {
    let key = format!("{section}.adapter_scale");
    let scale = keys.number(&key, -MOST_SCALE..=MOST_SCALE);
    let file = keys.text_or(&format!("{section}.adapter"), "off");
    if file.is_none() && scale.to_bits() != 1.0_f32.to_bits() {
        keys.fault(&key, format!("must be 1 if {section}.adapter is \"off\", is {scale}"));
    }
    file.map(|file| Adapter { file, scale })
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
    fn a_scorer_is_off_by_default_and_overrides_single_keys() {
        assert_eq!(load(&[]).unwrap().scorer, None);
        let flags = [
            ("scorer.model", "x.gguf"),
            ("generator.threads", "3"),
            ("scorer.batch", "64"),
            ("generator.cache_type", "q8_0"),
            ("generator.adapter", "a.gguf"),
            ("generator.yes_no_prompt", "qwen3"),
        ];
        let config = load(&flags).unwrap();
        let scorer = config.scorer.unwrap();
        assert_eq!((&*scorer.model, scorer.threads, scorer.batch, config.generator.batch), ("x.gguf", 3, 64, 0));
        assert_eq!((scorer.cache_type, scorer.adapter, scorer.yes_no_prompt), (CacheType::Q8_0, None, None));
        let flags = [("scorer.model", "x.gguf"), ("generator.threads", "3"), ("scorer.threads", "5")];
        assert_eq!(load(&flags).unwrap().scorer.unwrap().threads, 5);
        let faults = [("scorer.model", "x.gguf"), ("scorer.batch", "1"), ("scorer.cache_type", "f64")];
        let faults = load(&faults).unwrap_err();
        assert_eq!(faults[0], "scorer.batch: must be \"auto\" or between 16 and 65536, is 1");
        assert!(faults[1].starts_with("scorer.cache_type: must be one of f16"), "{faults:?}");
        let once = load(&[("scorer.model", "x.gguf"), ("generator.batch", "1")]).unwrap_err();
        assert_eq!(once, ["generator.batch: must be \"auto\" or between 16 and 65536, is 1"]);
        let itself = [("scorer.model", "smollm2-135m-instruct")];
        assert!(load(&itself).unwrap_err()[0].starts_with("scorer.model: is the generator itself"));
        assert!(load(&[itself[0], ("scorer.adapter", "a.gguf")]).is_ok());
        assert!(load(&[("scorer.reproducible", "true")]).unwrap_err()[0].starts_with("scorer.reproducible: unknown"));
    }

    #[test]
    fn sizes_are_automatic_or_bounded_and_fit_each_other() {
        let sizes = |flags: &[(&str, &str)]| load(flags).map(|config| (config.generator.cells, config.generator.batch));
        assert_eq!(sizes(&[]), Ok((0, 0)));
        assert_eq!(sizes(&[("generator.batch", "1024")]), Ok((0, 1024)));
        assert_eq!(sizes(&[("generator.context_tokens", "256")]), Ok((256, 0)));
        let faults = sizes(&[("generator.context_tokens", "255"), ("generator.batch", "0")]).unwrap_err();
        let expected = [
            "context_tokens: must be \"auto\" or between 256 and 16777216, is 255",
            "batch: must be \"auto\" or between 16 and 65536, is 0",
        ];
        assert_eq!(faults, expected.map(|fault| format!("generator.{fault}")));
        let faults = sizes(&[("generator.context_tokens", "256"), ("generator.batch", "257")]).unwrap_err();
        assert_eq!(faults, ["generator.batch: must not exceed generator.context_tokens"]);
    }

    #[test]
    fn the_yes_no_prompt_is_automatic_or_named() {
        assert_eq!(load(&[]).unwrap().generator.yes_no_prompt, None);
        let config = load(&[("scorer.model", "x.gguf"), ("scorer.yes_no_prompt", "bge-gemma")]).unwrap();
        assert_eq!(config.scorer.unwrap().yes_no_prompt, Some(YesNoPrompt::BgeGemma));
        let faults = load(&[("generator.yes_no_prompt", "gemma")]).unwrap_err();
        let expected = "generator.yes_no_prompt: must be \"auto\" or one of generic, qwen3, bge-gemma, mxbai-base, mxbai-large, is \"gemma\"";
        assert_eq!(faults, [expected]);
    }

    #[test]
    fn an_adapter_has_a_file_and_a_finite_scale() {
        assert_eq!(load(&[]).unwrap().generator.adapter, None);
        let flags = [("generator.adapter", "a.gguf"), ("generator.adapter_scale", "0.5")];
        let adapter = load(&flags).unwrap().generator.adapter.unwrap();
        assert_eq!((&*adapter.file, adapter.scale.to_bits()), ("a.gguf", 0.5_f32.to_bits()));
        for scale in ["NaN", "inf", "1e39", "-101", "", "much"] {
            let faults = load(&[("generator.adapter", "a.gguf"), ("generator.adapter_scale", scale)]).unwrap_err();
            assert!(faults[0].starts_with("generator.adapter_scale: must be between -100 and 100"), "{faults:?}");
        }
        let unused = load(&[("scorer.adapter", "a.gguf")]).unwrap_err();
        assert_eq!(unused, ["scorer.adapter: needs scorer.model, which is \"off\""]);
        let scale = load(&[("generator.adapter_scale", "0.5")]).unwrap_err();
        assert_eq!(scale, ["generator.adapter_scale: must be 1 if generator.adapter is \"off\", is 0.5"]);
        assert!(load(&[("generator.adapter_scale", "1.0")]).is_ok());
        let scorers = [("scorer.model", "x.gguf"), ("scorer.adapter_scale", "0")];
        let scorers = load(&scorers).unwrap_err();
        assert_eq!(scorers, ["scorer.adapter_scale: must be 1 if scorer.adapter is \"off\", is 0"]);
    }
}
