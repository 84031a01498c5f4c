//! Compares two configurations, for a server that reloads its configuration.

use serde_json::Value;

use super::Config;

impl Config {
    /// Keys whose values differ from those of `other`, in the order of their names.
    pub fn changes(&self, other: &Self) -> Vec<String> {
        let mut keys = Vec::new();
        compare(&self.effective, &other.effective, "", &mut keys);
        keys.sort();
        keys
    }
}

fn compare(one: &Value, other: &Value, path: &str, keys: &mut Vec<String>) {
    match (one, other) {
        // Both have the keys of the defaults.
        (Value::Object(section), Value::Object(others)) => {
            for (key, value) in section {
                let key_path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(value, others.get(key).unwrap_or(&Value::Null), &key_path, keys);
            }
        }
        _ if one == other => {}
        _ => keys.push(path.to_owned()),
    }
}
