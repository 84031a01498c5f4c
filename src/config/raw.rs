//! Configuration before validation: sections and keys, merged from defaults, file, environment and flags.

use std::ffi::OsString;
use std::path::Path;

use config::{Config, Environment, File, FileFormat};
use serde::Deserialize;
use serde_json::Value;

use super::ConfigError;

/// Default values as TOML. They also define the set of keys and the type of each.
pub const DEFAULTS: &str = include_str!("defaults.toml");

#[derive(Debug, Deserialize)]
pub(super) struct Raw {
    pub server: Server,
    pub limits: Limits,
    pub generator: Generator,
    pub scorer: super::generator::Section,
    pub entailment: Entailment,
    pub position_bias: PositionBias,
    pub models: Models,
    pub log: Log,
    pub warm: super::warm::Warm,
    pub metrics: super::observe::Metrics,
    pub traces: super::observe::Traces,
    pub tls: super::security::Tls,
    pub auth: super::security::Auth,
    pub connections: super::security::Connections,
    pub http: super::http::RawHttp,
    #[serde(flatten)]
    pub rerankers: super::rerankers::Raw,
}

#[derive(Debug, Deserialize)]
pub(super) struct Server {
    pub listen: String,
    pub message_bytes: usize,
    pub drain_seconds: u64,
    pub lame_duck_seconds: u64,
    pub reflection: bool,
    pub allow_insecure: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Limits {
    pub passages: usize,
    pub query_bytes: usize,
    pub passage_bytes: usize,
    pub orders: usize,
    pub tokens_per_request: usize,
    pub pairs_per_request: usize,
    pub truncate: bool,
    pub queue_length: usize,
    pub queue_seconds: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Generator {
    #[serde(flatten)]
    pub section: super::generator::Section,
    pub reproducible: bool,
    pub reencode: bool,
    pub reencode_megabytes: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Entailment {
    pub model: String,
    pub library: String,
    pub threads: usize,
    pub batch: usize,
    pub cache_entries: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct PositionBias {
    pub learn: bool,
    pub use_learnt: bool,
    pub use_built_in: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Models {
    pub store: String,
    pub catalog: String,
    pub hub_endpoint: String,
    pub hub_token: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Log {
    pub filter: String,
    pub format: String,
}

/// Merges all sources; later ones take precedence. The environment is a parameter, so that tests need not change it.
pub(super) fn merge(
    file: Option<&Path>,
    environment: &[(String, String)],
    flags: &[(String, String)],
) -> Result<Value, ConfigError> {
    let mut builder = Config::builder().add_source(File::from_str(DEFAULTS, FileFormat::Toml));
    if let Some(path) = file {
        let text =
            std::fs::read_to_string(path).map_err(|error| ConfigError::one(format!("{}: {error}", path.display())))?;
        builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
    }
    let ours = environment.iter().filter(|(key, _)| key.to_uppercase().starts_with("RERANKD__")).cloned().collect();
    let variables = Environment::with_prefix("RERANKD").prefix_separator("__").separator("__").source(Some(ours));
    builder = builder.add_source(variables);
    for (key, value) in flags {
        builder =
            builder.set_override(key, value.as_str()).map_err(|error| ConfigError::one(format!("{key}: {error}")))?;
    }
    let fault = |error: config::ConfigError| {
        let prefix = file.map_or_else(String::new, |path| format!("{}: ", path.display()));
        ConfigError::one(format!("{prefix}{}", without_source(&error.to_string())))
    };
    builder.build().map_err(fault)?.try_deserialize::<Value>().map_err(fault)
}

/// The variables of a process. Ours must be UTF-8: one that was passed over would leave a setting at its default, and with it perhaps
/// callers without certificates or tokens. Others need not be.
pub(super) fn environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, ConfigError> {
    let mut known = Vec::new();
    for (key, value) in variables {
        let shown = key.to_string_lossy().into_owned();
        let ours = shown.to_uppercase().starts_with("RERANKD__");
        match (key.into_string(), value.into_string()) {
            (Ok(key), Ok(value)) => known.push((key, value)),
            _ if ours => return Err(ConfigError::one(format!("{shown}: is not UTF-8, in its name or its value"))),
            _ => {}
        }
    }
    Ok(known)
}

/// The message of a parser without the lines of the file that it quotes: they may hold a token, and the message goes into the log.
fn without_source(message: &str) -> String {
    let quotes = |line: &&str| {
        line.trim_start().trim_start_matches(|char: char| char.is_ascii_digit()).trim_start().starts_with('|')
    };
    message.lines().filter(|line| !quotes(line)).collect::<Vec<_>>().join("\n")
}

/// Converts every value to the type of its default. Appends a fault for each value that cannot be converted and each
/// unknown key; the default stands for such a value then, so that the others can be checked.
pub(super) fn conform(value: &mut Value, default: &Value, path: &str, faults: &mut Vec<String>) {
    let problem = match (&mut *value, default) {
        (Value::Object(section), Value::Object(defaults)) => {
            section.retain(|key, inner| {
                let key_path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let known = defaults.get(key);
                match known {
                    Some(default) => conform(inner, default, &key_path, faults),
                    None => faults.push(format!("{key_path}: unknown key")),
                }
                known.is_some()
            });
            return;
        }
        (Value::Number(number), Value::Number(_)) if number.is_u64() => return,
        (Value::String(_), Value::String(_)) | (Value::Bool(_), Value::Bool(_)) => return,
        // Values from the environment and from flags are text.
        (slot @ Value::String(_), Value::Number(_)) => {
            if let Some(number) = slot.as_str().and_then(|text| text.trim().parse::<u64>().ok()) {
                *slot = Value::from(number);
                return;
            }
            "must be a whole number of 0 or more"
        }
        (slot @ Value::String(_), Value::Bool(_)) => {
            if let Some(truth) = slot.as_str().and_then(|text| text.trim().parse::<bool>().ok()) {
                *slot = Value::from(truth);
                return;
            }
            "must be true or false"
        }
        (slot, Value::String(_)) if slot.is_number() => {
            *slot = Value::String(slot.to_string());
            return;
        }
        (_, Value::Number(_)) => "must be a whole number of 0 or more",
        (_, Value::Bool(_)) => "must be true or false",
        (_, Value::String(_)) => "must be text",
        _ => "must be a section",
    };
    // A table or a list may hold a token, and an address one before its host.
    let secret = path.ends_with("token") || value.is_object() || value.is_array();
    let shown = if secret { "something else".to_owned() } else { value.to_string() };
    faults.push(format!("{path}: {problem}, is {shown}"));
    *value = default.clone();
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    /// They were passed over: with `RERANKD__TLS__CLIENT_CA` the server asked for no certificates.
    #[test]
    fn a_variable_of_ours_must_be_utf_8() {
        let broken = || OsString::from_vec(b"/etc/caf\xe9".to_vec());
        let read = |name: &str| environment([(OsString::from(name), broken())].into_iter());
        let refused = read("RERANKD__TLS__CLIENT_CA").unwrap_err().to_string();
        assert!(refused.contains("RERANKD__TLS__CLIENT_CA: is not UTF-8"), "{refused}");
        assert!(read("PATH").unwrap().is_empty());
        let whole = environment([("rerankd__a".into(), "1".into())].into_iter()).unwrap();
        assert_eq!(whole, [("rerankd__a".to_owned(), "1".to_owned())]);
    }
}
