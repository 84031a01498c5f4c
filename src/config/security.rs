//! Sections `[tls]`, `[auth]` and `[connections]`: access control and bounds on connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::MOST_SECONDS;
use super::keys::Keys;
use server::transport::{AccessFiles, Bounds, TlsFiles};

/// Access control and bounds on connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Files of certificates and tokens. They are read at the start of the server.
    pub files: AccessFiles,
    /// Bounds on connections.
    pub bounds: Bounds,
    allow_insecure: bool,
}

/// Reads the sections `tls`, `auth` and `connections`, and `server.allow_insecure`.
pub(super) fn read(keys: &mut Keys) -> Security {
    let allow_insecure = keys.flag("server.allow_insecure");
    let mut path = |key| keys.text_or(key, "off").map(PathBuf::from);
    let (certificate, key, client_ca) = (path("tls.certificate"), path("tls.key"), path("tls.client_ca"));
    let tokens = path("auth.tokens_file");
    let tls = match (certificate, key, client_ca) {
        (Some(certificate), Some(key), client_ca) => Some(TlsFiles { certificate, key, client_ca }),
        (None, None, None) => None,
        _ if keys.is_faulty("tls.") => None,
        (Some(_), None, _) => {
            keys.fault("tls.key", "must be set with tls.certificate");
            None
        }
        (None, key, _) => {
            let other = if key.is_some() { "tls.key" } else { "tls.client_ca" };
            keys.fault("tls.certificate", format!("must be set with {other}"));
            None
        }
    };
    let mut seconds = |key| keys.number_or(key, "unlimited", 1..=MOST_SECONDS).map(Duration::from_secs);
    let (idle, age) = (seconds("connections.idle_seconds"), seconds("connections.age_seconds"));
    let connections = keys.number("connections.limit", 1..=1_000_000);
    let bounds = Bounds { connections, idle, age, ..Bounds::default() };
    Security { files: AccessFiles { tls, tokens }, bounds, allow_insecure }
}

impl Security {
    /// Refuses addresses that other machines reach, if neither TLS nor tokens protect them and the operator did not allow it.
    pub(super) fn refuse_exposed(&self, addresses: [(&str, Option<SocketAddr>); 2], keys: &mut Keys) {
        let protected = self.files.tls.is_some() || self.files.tokens.is_some() || self.allow_insecure;
        // A faulty key may have been meant to protect them.
        if protected || ["server.allow_insecure", "tls", "auth"].iter().any(|start| keys.is_faulty(start)) {
            return;
        }
        for (key, address) in addresses {
            if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
                let advice = "set tls.certificate and tls.key, or auth.tokens_file, or server.allow_insecure";
                keys.fault(key, format!("{address} is reached from other machines: {advice}"));
            }
        }
    }
}

/// The token that a command presents to a server (`RERANKD_TOKEN`). It is never a flag, because other users see command
/// lines. Surrounding white space is removed: a variable made from a file ends with a newline.
///
/// # Errors
/// The variable is not UTF-8.
pub fn client_token() -> Result<Option<String>, String> {
    let given = match std::env::var("RERANKD_TOKEN") {
        Err(std::env::VarError::NotUnicode(_)) => return Err("RERANKD_TOKEN: is not UTF-8".to_owned()),
        given => given.ok(),
    };
    Ok(given.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<super::super::Config, super::super::ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rerankd.toml");
        std::fs::write(&path, text).unwrap();
        super::super::Config::from_parts(Some(&path), &[], &[])
    }

    #[test]
    fn an_exposed_address_needs_protection_or_permission() {
        for listen in ["0.0.0.0:1", "[::]:1", "192.168.1.4:1"] {
            let server = format!("[server]\nlisten = \"{listen}\"");
            let faults = load(&server).unwrap_err().faults;
            assert!(faults.len() == 1 && faults[0].contains("allow_insecure"), "{faults:?}");
            assert!(load(&format!("{server}\nallow_insecure = true")).is_ok());
            assert!(load(&format!("{server}\n[auth]\ntokens_file = \"t\"")).is_ok());
            assert!(load(&format!("{server}\n[tls]\ncertificate = \"c\"\nkey = \"k\"")).is_ok());
        }
        for listen in ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1"] {
            assert!(load(&format!("[server]\nlisten = \"{listen}\"")).is_ok(), "{listen}");
        }
    }

    #[test]
    fn certificates_and_keys_go_together() {
        let fault = |tls: &str| load(&format!("[tls]\n{tls}")).unwrap_err().faults.join("|");
        assert_eq!(fault("certificate = \"c\""), "tls.key: must be set with tls.certificate");
        assert_eq!(fault("key = \"k\""), "tls.certificate: must be set with tls.key");
        assert_eq!(fault("client_ca = \"a\""), "tls.certificate: must be set with tls.client_ca");
    }

    #[test]
    fn the_defaults_are_those_of_the_bounds() {
        assert_eq!(load("").unwrap().security.bounds, Bounds::default());
        let faults = load("[connections]\nlimit = 0\nidle_seconds = 0").unwrap_err().faults;
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(load("[connections]\nidle_seconds = \"unlimited\"").unwrap().security.bounds.idle, None);
    }

    #[test]
    fn changed_keys_are_named() {
        let (old, new) = (load("").unwrap(), load("[log]\nfilter = \"debug\"\n[limits]\npassages = 3").unwrap());
        assert_eq!(old.changes(&new), ["limits.passages", "log.filter"]);
        assert!(old.changes(&old).is_empty());
    }
}
