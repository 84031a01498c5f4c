//! Certificates for tests; every test generates its own.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use server::transport::TlsFiles;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for this machine, and its key, in PEM.
    pub fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A certificate that expired on the first day of `year`, and its key, as bytes.
    pub fn identity_until(&self, year: i32) -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem().into_bytes(), key.serialize_pem().into_bytes())
    }

    /// A certificate and its key as bytes.
    pub fn identity(&self) -> (Vec<u8>, Vec<u8>) {
        let (certificate, key) = self.issue();
        (certificate.into_bytes(), key.into_bytes())
    }
}

/// Writes a new certificate of `authority` into `folder`.
pub fn install(folder: &Path, authority: &Authority, client_ca: Option<&Authority>) -> TlsFiles {
    let (certificate, key) = authority.issue();
    let write = |name: &str, text: &str| -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        certificate: write("server.pem", &certificate),
        key: write("server.key", &key),
        client_ca: client_ca.map(|authority| write("clients.pem", &authority.pem)),
    }
}
