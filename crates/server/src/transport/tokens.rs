//! Bearer tokens: the server stores SHA-256 hashes, callers send the tokens.
//!
//! A token is 32 random bytes, too many for a dictionary, so its hash needs no salt. A file has one line `NAME:HASH`
//! per token. Several tokens may share a name, so that a caller can change its token without downtime.

use std::path::Path;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::watched::{FileFault, Watched, content};

/// Longest name of a caller in bytes. Every log line of its calls contains it.
const NAME_BYTES: usize = 64;

/// Prefix of every token from [`NewToken::new`], for scanners of leaked secrets.
const PREFIX: &str = "rerankd_";

/// The caller, identified by its token.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller(Option<Arc<str>>);

impl Caller {
    /// Name of the token; `None` if the server needs none.
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// The reason for a refusal. No variant contains the caller's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no `authorization` header.
    #[error("authorization: a bearer token is required")]
    Missing,
    /// The header occurs twice, or is not `Bearer TOKEN`.
    #[error("authorization: must be Bearer TOKEN")]
    Malformed,
    /// The token is not in the file.
    #[error("authorization: the token is not valid")]
    Unknown,
}

struct Entry {
    name: Arc<str>,
    hash: [u8; 32],
}

/// The tokens in use. The default admits everyone.
#[derive(Default)]
pub struct Tokens(Option<Watched<Vec<Entry>>>);

impl Tokens {
    /// Reads a file of tokens. A file without tokens admits nobody.
    ///
    /// # Errors
    /// The file and the line at fault.
    pub fn load(path: &Path) -> Result<Self, FileFault> {
        let own = path.to_owned();
        let read = Box::new(move || {
            let text = String::from_utf8(content(&own, true)?).map_err(|_| FileFault::new(&own, &"must be UTF-8"))?;
            let entries = parse(&text).map_err(|problem| FileFault::new(&own, &problem))?;
            if entries.is_empty() {
                tracing::warn!(path = %own.display(), "the file contains no token: every call is refused");
            }
            Ok(entries)
        });
        Ok(Self(Some(Watched::new("tokens", vec![path.to_owned()], read)?)))
    }

    /// True if calls must carry a token.
    pub const fn required(&self) -> bool {
        self.0.is_some()
    }

    /// Finds the caller of a request by its `authorization` header. Every hash is compared, in constant time, so that
    /// the duration of a refusal reveals nothing about a token.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        let Some(watched) = &self.0 else { return Ok(Caller::default()) };
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let value = values.next().ok_or(Refused::Missing)?;
        if values.next().is_some() {
            return Err(Refused::Malformed);
        }
        let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(Refused::Malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
            return Err(Refused::Malformed);
        }
        let hash: [u8; 32] = Sha256::digest(token.trim().as_bytes()).into();
        let entries = watched.get();
        let mut found = Choice::from(0);
        let mut place = 0_u64;
        for (index, entry) in (0_u64..).zip(entries.iter()) {
            let equal = entry.hash.ct_eq(&hash);
            place.conditional_assign(&index, equal);
            found |= equal;
        }
        let entry = usize::try_from(place).ok().and_then(|place| entries.get(place));
        match entry {
            Some(entry) if bool::from(found) => Ok(Caller(Some(Arc::clone(&entry.name)))),
            _ => Err(Refused::Unknown),
        }
    }

    pub(super) fn reload(&self, always: bool) -> Result<(), FileFault> {
        self.0.as_ref().map_or(Ok(()), |watched| watched.reload(always))
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && text.len() <= NAME_BYTES && text.bytes().all(allowed)
}

/// Reads lines `NAME:HASH`. Empty lines and lines that begin with `#` are skipped.
fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // Not quoted, because the line may contain a token by mistake.
        let fault = |problem: &str| format!("line {number}: {problem}");
        let (name, hash) = line.split_once(':').ok_or_else(|| fault("must be NAME:HASH"))?;
        if !is_name(name) {
            return Err(fault("the name must be 1 to 64 letters, digits, dots, dashes or underscores"));
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(hash, &mut bytes)
            .map_err(|_| fault("the hash must be 64 hexadecimal digits (SHA-256)"))?;
        entries.push(Entry { name: name.into(), hash: bytes });
    }
    Ok(entries)
}

/// A token made for a caller. It is not stored anywhere.
pub struct NewToken {
    /// The token, for the caller.
    pub token: String,
    /// The line for the file of tokens.
    pub line: String,
}

impl NewToken {
    /// Makes a token from 32 random bytes of the operating system.
    ///
    /// # Errors
    /// A message, if `name` is not a valid name or there are no random bytes.
    pub fn new(name: &str) -> Result<Self, String> {
        if !is_name(name) {
            return Err("the name must be 1 to 64 letters, digits, dots, dashes or underscores".to_owned());
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
        let token = format!("{PREFIX}{}", hex::encode(bytes));
        let line = format!("{name}:{}", hex::encode(Sha256::digest(token.as_bytes())));
        Ok(Self { token, line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        headers
    }

    /// `printf secret | sha256sum`
    const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_token_is_found_by_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let new = NewToken::new("indexer").unwrap();
        std::fs::write(&path, format!("# callers\n\nsearch:{SECRET}\n{}\n", new.line)).unwrap();
        let tokens = Tokens::load(&path).unwrap();
        assert_eq!(tokens.check(&headers("Bearer secret")).unwrap().name(), Some("search"));
        assert_eq!(tokens.check(&headers(&format!("bearer {}", new.token))).unwrap().name(), Some("indexer"));
        assert_eq!(tokens.check(&headers("Bearer secre")), Err(Refused::Unknown));
        assert_eq!(
            tokens.check(&headers(&format!("Bearer {SECRET}"))),
            Err(Refused::Unknown),
            "the hash is not a token"
        );
        assert_eq!(tokens.check(&HeaderMap::new()), Err(Refused::Missing));
        for malformed in ["secret", "Basic secret", "Bearer "] {
            assert_eq!(tokens.check(&headers(malformed)), Err(Refused::Malformed), "{malformed}");
        }
        let mut twice = headers("Bearer secret");
        twice.append(AUTHORIZATION, "Bearer other".parse().unwrap());
        assert_eq!(tokens.check(&twice), Err(Refused::Malformed));
        std::fs::write(&path, "# nobody\n").unwrap();
        tokens.reload(true).unwrap();
        assert_eq!(tokens.check(&headers("Bearer secret")), Err(Refused::Unknown));
    }

    #[test]
    fn without_a_file_everyone_is_admitted() {
        assert_eq!(Tokens::default().check(&HeaderMap::new()).unwrap().name(), None);
        assert!(!Tokens::default().required());
    }

    /// A token instead of a hash is the likely mistake.
    #[test]
    fn faults_name_the_line_and_quote_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        for line in
            ["search", "search:secret", &format!("a b:{SECRET}"), &format!(":{SECRET}"), &format!("x:{SECRET}0")]
        {
            std::fs::write(&path, format!("search:{SECRET}\n{line}\n")).unwrap();
            let fault = Tokens::load(&path).err().unwrap().to_string();
            assert!(fault.contains("line 2: ") && !fault.contains("secret"), "{fault}");
        }
    }

    #[test]
    fn a_file_that_becomes_unusable_keeps_the_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, format!("search:{SECRET}\n")).unwrap();
        let tokens = Tokens::load(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(tokens.reload(false).is_err());
        assert!(tokens.reload(false).is_ok(), "an unchanged fault is not reported again");
        assert!(tokens.check(&headers("Bearer secret")).is_ok());
    }

    #[test]
    fn names_are_checked() {
        for wrong in ["", "a b", "a:b", &"x".repeat(65), "é"] {
            assert!(NewToken::new(wrong).is_err(), "{wrong}");
        }
        let (first, second) = (NewToken::new("a").unwrap(), NewToken::new("a").unwrap());
        assert_ne!(first.token, second.token);
        assert_eq!(first.token.len(), PREFIX.len() + 64);
    }
}
