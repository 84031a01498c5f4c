//! Repairs a common fault of JSON writers: half a surrogate pair.

use std::borrow::Cow;

/// Replaces every escaped half of a surrogate pair (`\ud83d` without its other half) by `\ufffd`, the replacement
/// character. JavaScript writes such halves when it cuts a text inside an emoji. Positions in the text do not change.
///
/// The text need not be valid JSON: only escapes are examined.
pub fn without_half_surrogates(json: &str) -> Cow<'_, str> {
    let mut repaired: Option<String> = None;
    let bytes = json.as_bytes();
    let unit = |at: usize| {
        let escape = bytes.get(at..at + 6).filter(|escape| escape.starts_with(b"\\u"))?;
        u16::from_str_radix(std::str::from_utf8(&escape[2..]).ok()?, 16).ok()
    };
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'\\', &bytes[at..]) {
        at += next;
        at += match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                repaired.get_or_insert_with(|| json.to_owned()).replace_range(at..at + 6, "\\ufffd");
                6
            }
            // Any other escape: the character after the backslash may itself be a backslash.
            _ => 2,
        };
        at = at.min(bytes.len());
    }
    repaired.map_or(Cow::Borrowed(json), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_are_replaced_and_pairs_are_kept() {
        let rows = [
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#""\udc00 first""#, "\u{fffd} first"),
            (r#""\ud83d\ude00""#, "\u{1f600}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ude00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\n\u0041""#, "\u{fffd}\nA"),
            (r#""a \\ud83d""#, "a \\ud83d"),
            (r#""\\\ud83d""#, "\\\u{fffd}"),
            (r#""\uD83Dx""#, "\u{fffd}x"),
        ];
        for (json, text) in rows {
            assert_eq!(serde_json::from_str::<String>(&without_half_surrogates(json)).unwrap(), text, "{json}");
        }
        for untouched in ["", "\\", "\\u", "\\ud83", r#""\ud83d\ude00""#, "plain é"] {
            assert!(matches!(without_half_surrogates(untouched), Cow::Borrowed(_)), "{untouched}");
        }
    }

    proptest! {
        /// Any sequence of escaped UTF-16 units gives the same as a lossy decoder.
        #[test]
        fn as_a_lossy_decoder(units in prop::collection::vec(prop_oneof![0xd800_u16..0xe000, any::<u16>()], 0..20)) {
            let escaped = units.iter().map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat();
            let read: String = serde_json::from_str(&without_half_surrogates(&format!("\"{escaped}\""))).unwrap();
            prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }

        #[test]
        fn any_text_keeps_its_length(text in "[\\\\ud8cf0\"é]{0,40}") {
            prop_assert_eq!(without_half_surrogates(&text).len(), text.len());
        }
    }
}
