//! Keys of the configuration: merged from defaults, file, environment and flags, and read one by one.

use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use config::{Environment, File, FileFormat};
use serde_json::Value;

use super::ConfigError;

/// Default values as TOML. They also define the set of keys.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// Keys of `[scorer]` that describe its model, so they are not inherited from `[generator]`.
const NOT_INHERITED: [&str; 4] = ["model", "adapter", "adapter_scale", "yes_no_prompt"];

/// Similarity of two names, from 0 to 1, above which one may be a misspelling of the other.
const SIMILAR: f64 = 0.8;

/// The merged values, and the faults that were found in them.
pub(super) struct Keys {
    values: Value,
    defaults: Value,
    /// One message per fault, each starting with its key.
    pub faults: Vec<String>,
}

impl Keys {
    /// Merges all sources; later ones take precedence. The environment is a parameter, so that tests need not change it.
    pub fn merge(
        file: Option<&Path>,
        environment: &[(String, String)],
        flags: &[(String, String)],
    ) -> Result<Self, ConfigError> {
        let defaults = toml::from_str(DEFAULTS).map_err(|error| ConfigError::one(error.to_string()))?;
        let mut builder = config::Config::builder().add_source(File::from_str(DEFAULTS, FileFormat::Toml));
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| ConfigError::one(format!("{}: {error}", path.display())))?;
            builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
        }
        let ours = environment.iter().filter(|(key, _)| key.to_uppercase().starts_with("RERANKD__")).cloned().collect();
        // Compose files set a missing variable to nothing.
        let variables = Environment::with_prefix("RERANKD").prefix_separator("__").separator("__").ignore_empty(true);
        builder = builder.add_source(variables.source(Some(ours)));
        for (key, value) in flags {
            builder = builder
                .set_override(key, value.as_str())
                .map_err(|error| ConfigError::one(format!("{key}: {error}")))?;
        }
        let fault = |error: config::ConfigError| {
            let prefix = file.map_or_else(String::new, |path| format!("{}: ", path.display()));
            ConfigError::one(format!("{prefix}{error}"))
        };
        let mut values = builder.build().map_err(fault)?.try_deserialize::<Value>().map_err(fault)?;
        type_texts(&mut values);
        let mut keys = Self { values, defaults, faults: Vec::new() };
        keys.refuse_unknown();
        Ok(keys)
    }

    /// The merged values.
    pub fn into_values(self) -> Value {
        self.values
    }

    /// Records that a key is at fault.
    pub fn fault(&mut self, key: &str, problem: impl Display) {
        let fault = format!("{key}: {problem}");
        // `[scorer]` reads the values of `[generator]` again.
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// True if a key that starts like this has a fault.
    pub fn is_faulty(&self, start: &str) -> bool {
        self.faults.iter().any(|fault| fault.starts_with(start))
    }

    /// The key that holds the value of `key`: a key of `[generator]` if `[scorer]` inherits the value.
    pub fn source(&self, key: &str) -> String {
        self.find(key).0
    }

    /// A number within `range`.
    pub fn number<T>(&mut self, key: &str, range: RangeInclusive<T>) -> T
    where
        T: FromStr + PartialOrd + Display + Default,
    {
        let allowed = format!("between {} and {}", range.start(), range.end());
        self.read(key, &allowed, |value| number(value, &range))
    }

    /// A number within `range`; `None` if the value is `word`.
    pub fn number_or<T>(&mut self, key: &str, word: &str, range: RangeInclusive<T>) -> Option<T>
    where
        T: FromStr + PartialOrd + Display,
    {
        let allowed = format!("{word:?} or between {} and {}", range.start(), range.end());
        self.read(key, &allowed, |value| if value == word { Some(None) } else { number(value, &range).map(Some) })
    }

    /// True or false.
    pub fn flag(&mut self, key: &str) -> bool {
        self.read(key, "true or false", Value::as_bool)
    }

    /// Text that is not empty.
    pub fn text(&mut self, key: &str) -> String {
        self.read(key, "text that is not empty", |value| text(value).filter(|text| !text.is_empty()))
    }

    /// Text that is not empty; `None` if the value is `word`.
    pub fn text_or(&mut self, key: &str, word: &str) -> Option<String> {
        self.parsed_or(key, word, "other text", |text| Some(text).filter(|text| !text.is_empty()).map(str::to_owned))
    }

    /// A text parsed by `parse`; `what` describes it in the error. `None` if the value is `word`.
    pub fn parsed_or<T>(&mut self, key: &str, word: &str, what: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.read(key, &format!("{word:?} or {what}"), |value| {
            if value == word { Some(None) } else { parse(&text(value)?).map(Some) }
        })
    }

    /// One of several words.
    pub fn choice<T: Clone + Default>(&mut self, key: &str, choices: &[(&str, T)]) -> T {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.read(key, &format!("one of {}", words.join(", ")), |value| {
            choices.iter().find(|(word, _)| value == word).map(|(_, choice)| choice.clone())
        })
    }

    /// The value of a key, parsed by `parse`. A rejected value is a fault, and the default is used instead.
    pub fn read<T: Default>(&mut self, key: &str, allowed: &str, parse: impl Fn(&Value) -> Option<T>) -> T {
        let (source, value) = self.find(key);
        if let Some(read) = parse(value) {
            return read;
        }
        let fault = format!("must be {allowed}, is {value}");
        let default = default_of(&self.defaults, &source).and_then(parse);
        self.fault(&source, fault);
        default.unwrap_or_default()
    }

    /// The value of a key, and the key that holds it.
    fn find(&self, key: &str) -> (String, &Value) {
        let found = get(&self.values, key).map(|value| (key.to_owned(), value));
        let inherited = || {
            let inherited = inherits(key)?;
            get(&self.values, &inherited).map(|value| (inherited, value))
        };
        let default = || (key.to_owned(), default_of(&self.defaults, key).unwrap_or(&Value::Null));
        found.or_else(inherited).unwrap_or_else(default)
    }

    /// Removes unknown keys and values that are not sections. Each is a fault.
    fn refuse_unknown(&mut self) {
        let known = known(&self.defaults);
        let sections: Vec<&str> = known.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
        let mut faults = Vec::new();
        if let Value::Object(values) = &mut self.values {
            values.retain(|section, keys| {
                let is_known = sections.contains(&section.as_str());
                match keys {
                    Value::Object(keys) => keys.retain(|key, _| {
                        let path = format!("{section}.{key}");
                        let is_known = known.contains(&path);
                        if !is_known {
                            faults.push(unknown(&path, &known));
                        }
                        is_known
                    }),
                    _ if is_known => faults.push(format!("{section}: must be a section, [{section}]")),
                    _ => faults.push(unknown(section, &known)),
                }
                is_known && keys.is_object()
            });
        }
        self.faults = faults;
    }
}

/// The paths of all keys.
fn known(defaults: &Value) -> Vec<String> {
    let of = |section: &str| -> Vec<String> {
        let keys = defaults.get(section).and_then(Value::as_object);
        keys.into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let sections = defaults.as_object().into_iter().flatten();
    let listed = sections.flat_map(|(section, _)| of(section).into_iter().map(move |key| format!("{section}.{key}")));
    // `generator.reproducible` applies to both models.
    let scorers = of("generator").into_iter().filter(|key| key != "model" && key != "reproducible");
    listed.chain(scorers.map(|key| format!("scorer.{key}"))).collect()
}

/// The error for an unknown key, with the most similar known key.
fn unknown(path: &str, known: &[String]) -> String {
    let (section, name) = path.split_once('.').unwrap_or((path, ""));
    let similarity = |other: &String| {
        let (other_section, other_name) = other.split_once('.').unwrap_or((other, ""));
        if section == other_section {
            return strsim::jaro_winkler(name, other_name);
        }
        // The right name in another section, or both misspelt.
        let moved = if name == other_name { SIMILAR } else { 0.0 };
        moved + (1.0 - SIMILAR) * strsim::normalized_levenshtein(path, other)
    };
    let nearest = known.iter().map(|key| (similarity(key), key)).max_by(|one, other| one.0.total_cmp(&other.0));
    let siblings: Vec<&str> = known.iter().filter_map(|key| key.strip_prefix(section)?.strip_prefix('.')).collect();
    match nearest {
        Some((similarity, key)) if similarity > SIMILAR => format!("{path}: unknown key; did you mean {key}?"),
        _ if siblings.is_empty() => {
            let with_section: Vec<&str> =
                known.iter().filter(|key| key.ends_with(&format!(".{path}"))).map(String::as_str).collect();
            if !with_section.is_empty() {
                return format!("{path}: has no section; did you mean {}?", with_section.join(" or "));
            }
            let mut sections: Vec<&str> = known.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
            sections.sort_unstable();
            sections.dedup();
            format!("{path}: unknown section; there are {}", sections.join(", "))
        }
        _ => format!("{path}: unknown key; [{section}] has {}", siblings.join(", ")),
    }
}

/// The key of `[generator]` whose value a key of `[scorer]` inherits.
fn inherits(key: &str) -> Option<String> {
    let name = key.strip_prefix("scorer.").filter(|name| !NOT_INHERITED.contains(name))?;
    Some(format!("generator.{name}"))
}

fn get<'value>(values: &'value Value, key: &str) -> Option<&'value Value> {
    let (section, name) = key.split_once('.')?;
    values.get(section)?.get(name)
}

fn default_of<'value>(defaults: &'value Value, key: &str) -> Option<&'value Value> {
    let same = || get(defaults, &format!("generator.{}", key.strip_prefix("scorer.")?));
    get(defaults, key).or_else(same)
}

/// Converts texts that are numbers or booleans: values from the environment and from flags are text.
fn type_texts(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(type_texts),
        Value::String(text) => {
            let typed = serde_json::from_str(text.trim());
            if let Ok(typed @ (Value::Number(_) | Value::Bool(_))) = typed {
                // `007` stays a text.
                let canonical = typed.to_string();
                if canonical == text.trim() {
                    *value = typed;
                }
            }
        }
        _ => {}
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        // A name made of digits.
        Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

fn number<T: FromStr + PartialOrd>(value: &Value, range: &RangeInclusive<T>) -> Option<T> {
    let number = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => return None,
    };
    number.parse().ok().filter(|number| range.contains(number))
}

/// Checks the variables of a process. Ours must be UTF-8: a skipped one would leave a setting at its default, perhaps
/// without client certificates or tokens. Other variables need not be UTF-8.
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

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    /// A skipped `RERANKD__TLS__CLIENT_CA` would turn off client certificates.
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

    #[test]
    fn there_are_at_most_sixty_keys() {
        let defaults: Value = toml::from_str(DEFAULTS).unwrap();
        let listed = defaults.as_object().unwrap().values().map(|section| section.as_object().unwrap().len());
        let listed: usize = listed.sum();
        assert!(listed <= 60, "{listed} keys");
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_one() {
        let fault = |key: &str| {
            let flags = [(key.to_owned(), "1".to_owned())];
            Keys::merge(None, &[], &flags).unwrap().faults.join("|")
        };
        assert_eq!(fault("limits.pasages"), "limits.pasages: unknown key; did you mean limits.passages?");
        assert_eq!(fault("warm.disk_bytes"), "warm.disk_bytes: unknown key; did you mean passage_cache.disk_bytes?");
        let jinja = "generator.jinja: unknown key; did you mean ";
        assert!(!fault("generator.jinja").starts_with(jinja), "{}", fault("generator.jinja"));
        let keepalive = fault("connections.keepalive_seconds");
        assert_eq!(
            keepalive,
            "connections.keepalive_seconds: unknown key; [connections] has age_seconds, idle_seconds, limit"
        );
        assert_eq!(
            fault("listen"),
            "listen: has no section; did you mean http.listen or metrics.listen or server.listen?"
        );
        assert!(fault("nonsense.x").starts_with("nonsense.x: unknown section; there are auth, connections, "));
        assert_eq!(fault("scorer.thread"), "scorer.thread: unknown key; did you mean scorer.threads?");
        assert_eq!(fault("limits"), "limits: must be a section, [limits]");
        assert_eq!(fault("generator.threads"), "");
    }

    #[test]
    fn values_of_variables_and_flags_have_the_types_of_a_file() {
        let flags = [("generator.threads", "3"), ("generator.adapter_scale", "0.5"), ("generator.model", "007")];
        let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let environment = [("RERANKD__GENERATOR__REPRODUCIBLE".to_owned(), "true".to_owned())];
        let mut keys = Keys::merge(None, &environment, &flags).unwrap();
        assert_eq!(keys.values["generator"]["threads"], 3);
        assert_eq!(keys.values["generator"]["adapter_scale"], 0.5);
        assert_eq!(keys.values["generator"]["reproducible"], true);
        assert_eq!((keys.text("generator.model"), keys.number("generator.threads", 1..=4)), ("007".to_owned(), 3));
        assert!(keys.faults.is_empty());
        assert_eq!(keys.number::<u32>("generator.threads", 5..=9), 0);
        assert_eq!(keys.faults, ["generator.threads: must be between 5 and 9, is 3"]);
    }
}
