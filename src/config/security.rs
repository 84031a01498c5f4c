//! Sections `[tls]`, `[auth]` and `[connections]`: who may connect, and within which bounds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use server::transport::{AccessFiles, Bounds, TlsFiles};

#[derive(Debug, Deserialize)]
pub(super) struct Tls {
    certificate: String,
    key: String,
    client_ca: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Auth {
    tokens_file: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Connections {
    limit: usize,
    streams: usize,
    header_bytes: usize,
    pending_resets: usize,
    handshake_seconds: u64,
    idle_seconds: u64,
    age_seconds: u64,
    age_grace_seconds: u64,
    keepalive_seconds: u64,
    keepalive_timeout_seconds: u64,
    unread_seconds: u64,
}

/// Who may connect to the server, and within which bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    /// Files of certificates and tokens. They are read at the start of the server.
    pub files: AccessFiles,
    /// Bounds on connections.
    pub bounds: Bounds,
}

/// Longest duration that is taken, a year: longer ones overflow a clock.
const MOST_SECONDS: u64 = 365 * 86_400;

fn optional(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// Checks the sections. Appends what is wrong to `faults`.
pub(super) fn validate(tls: &Tls, auth: &Auth, connections: &Connections, faults: &mut Vec<String>) -> Security {
    let files = match (optional(&tls.certificate), optional(&tls.key), optional(&tls.client_ca)) {
        (Some(certificate), Some(key), client_ca) => Some(TlsFiles { certificate, key, client_ca }),
        (None, None, None) => None,
        (Some(_), None, _) => {
            faults.push("tls.key: must be set with tls.certificate".to_owned());
            None
        }
        (None, key, _) => {
            let other = if key.is_some() { "tls.key" } else { "tls.client_ca" };
            faults.push(format!("tls.certificate: must be set with {other}"));
            None
        }
    };
    let counts = [
        ("limit", connections.limit as u64, 1, 1_000_000),
        ("streams", connections.streams as u64, 1, 1_000_000),
        ("header_bytes", connections.header_bytes as u64, 1024, 1 << 20),
        ("pending_resets", connections.pending_resets as u64, 1, 1_000_000),
        ("handshake_seconds", connections.handshake_seconds, 1, MOST_SECONDS),
        ("idle_seconds", connections.idle_seconds, 0, MOST_SECONDS),
        ("age_seconds", connections.age_seconds, 0, MOST_SECONDS),
        ("age_grace_seconds", connections.age_grace_seconds, 1, MOST_SECONDS),
        ("keepalive_seconds", connections.keepalive_seconds, 0, MOST_SECONDS),
        ("keepalive_timeout_seconds", connections.keepalive_timeout_seconds, 1, MOST_SECONDS),
        ("unread_seconds", connections.unread_seconds, 1, MOST_SECONDS),
    ];
    for (key, value, least, most) in counts {
        if value < least || value > most {
            faults.push(format!("connections.{key}: must be between {least} and {most}, is {value}"));
        }
    }
    let narrow = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let bound = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
    let bounds = Bounds {
        connections: connections.limit,
        streams: narrow(connections.streams),
        header_bytes: narrow(connections.header_bytes),
        pending_resets: connections.pending_resets,
        handshake: Duration::from_secs(connections.handshake_seconds),
        idle: bound(connections.idle_seconds),
        age: bound(connections.age_seconds),
        age_grace: Duration::from_secs(connections.age_grace_seconds),
        keepalive: bound(connections.keepalive_seconds),
        keepalive_timeout: Duration::from_secs(connections.keepalive_timeout_seconds),
        unread: Duration::from_secs(connections.unread_seconds),
        ..Bounds::default()
    };
    Security { files: AccessFiles { tls: files, tokens: optional(&auth.tokens_file) }, bounds }
}

/// Refuses an address that other machines reach, where neither TLS nor tokens protect it and the operator did not allow it.
pub(super) fn exposed(key: &str, listen: SocketAddr, security: &Security, allowed: bool) -> Option<String> {
    let protected = security.files.tls.is_some() || security.files.tokens.is_some();
    (!listen.ip().is_loopback() && !protected && !allowed).then(|| {
        format!(
            "{key}: {listen} is reached from other machines: set tls.certificate and tls.key, or auth.tokens_file, \
             or server.allow_insecure"
        )
    })
}

/// Whether a key decides who may reach an address.
pub(super) fn protects(key: &str) -> bool {
    key == "server.allow_insecure" || key.starts_with("tls") || key.starts_with("auth")
}

/// Socket of the service manager, and the interval of its watchdog where this process is the one it watches.
pub(super) fn service_manager(variable: &dyn Fn(&str) -> Option<String>) -> Option<(String, Option<Duration>)> {
    let socket = variable("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())?;
    let ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
    let micros = variable("WATCHDOG_USEC").filter(|_| ours).and_then(|micros| micros.parse::<u64>().ok());
    Some((socket, micros.filter(|micros| *micros > 0).map(Duration::from_micros)))
}

/// The token that a command presents to a server (`RERANKD_TOKEN`), and never a flag: other users see command lines. White space
/// around it is not part of it: a variable that was made of a file ends with the file's line.
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
        let faults = load("[connections]\nlimit = 0\nunread_seconds = 0\nidle_seconds = 0").unwrap_err().faults;
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(load("[connections]\nidle_seconds = 0").unwrap().security.bounds.idle, None);
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let variable = |pid: &'static str| {
            move |name: &str| match name {
                "NOTIFY_SOCKET" => Some("/run/x".to_owned()),
                "WATCHDOG_USEC" => Some("3000000".to_owned()),
                "WATCHDOG_PID" => Some(pid.to_owned()),
                _ => None,
            }
        };
        assert_eq!(service_manager(&variable("1")), Some(("/run/x".to_owned(), None)));
        assert_eq!(service_manager(&|_: &str| None), None);
    }

    #[test]
    fn changed_keys_are_named() {
        let (old, new) = (load("").unwrap(), load("[log]\nfilter = \"debug\"\n[limits]\npassages = 3").unwrap());
        assert_eq!(old.changes(&new), ["limits.passages", "log.filter"]);
        assert!(old.changes(&old).is_empty());
    }
}
