//! The certificate store: which bundles Tyk takes, under which id, and what it says about them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rustls::{
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A certificate of the store, without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Id in the store: organisation and SHA-256 of the leaf.
    pub id: String,
    /// Organisation of the upload.
    pub org: String,
    /// Its private key was uploaded too.
    pub has_private: bool,
    /// Names that the leaf is for: those of the extension for alternative names, else the common name.
    pub names: Vec<String>,
    /// Common name of the subject.
    pub subject: String,
    /// Common name of the issuer.
    pub issuer: String,
    /// Validity.
    pub not_before: Timestamp,
    /// Validity.
    pub not_after: Timestamp,
}

/// What a bundle holds, with the key.
pub(crate) struct Entry {
    pub(crate) stored: Stored,
    /// What TLS needs to serve it.
    pub(crate) served: Option<std::sync::Arc<CertifiedKey>>,
}

/// Why a bundle is not taken; messages as the gateway gives them.
pub(crate) fn read(pem: &[u8], org: &str) -> Result<Entry, String> {
    const NO_PEM: &str = "Failed to decode certificate. It should be PEM encoded.";
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .collect();
    let leaf = chain.first().ok_or(NO_PEM)?.clone();
    let now = Timestamp::now();
    let mut facts = None;
    for certificate in &chain {
        let found = Facts::of(certificate).ok_or("x509: malformed certificate")?;
        if found.not_after < now {
            return Err("certificate is expired".to_owned());
        }
        facts.get_or_insert(found);
    }
    let facts = facts.ok_or(NO_PEM)?;
    let mut keys = PrivateKeyDer::pem_slice_iter(pem).filter_map(Result::ok);
    let key = keys.next();
    if keys.next().is_some() {
        return Err("Found multiple private keys".to_owned());
    }
    let served = match key {
        None => None,
        Some(key) => {
            let signing = default_provider()
                .key_provider
                .load_private_key(key)
                .map_err(|_| "tls: failed to parse private key")?;
            let certified = CertifiedKey::new(chain, signing);
            certified
                .keys_match()
                .map_err(|_| "tls: private key does not match public key")?;
            Some(std::sync::Arc::new(certified))
        }
    };
    let stored = Stored {
        id: format!("{org}{}", hex(&Sha256::digest(&leaf))),
        org: org.to_owned(),
        has_private: served.is_some(),
        names: facts.names,
        subject: facts.subject,
        issuer: facts.issuer,
        not_before: facts.not_before,
        not_after: facts.not_after,
    };
    Ok(Entry { stored, served })
}

impl Stored {
    /// As the detailed list shows it.
    pub(crate) fn basics(&self) -> Value {
        json!({
            "id": self.id,
            "issuer_cn": self.issuer,
            "subject_cn": self.subject,
            "dns_names": self.names,
            "has_private": self.has_private,
            "not_before": self.not_before.to_string(),
            "not_after": self.not_after.to_string(),
            "is_ca": false,
        })
    }

    /// As a single one is shown.
    pub(crate) fn details(&self) -> Value {
        let fingerprint = self.id.strip_prefix(self.org.as_str()).unwrap_or(&self.id);
        json!({
            "id": self.id,
            "fingerprint": fingerprint,
            "has_private": self.has_private,
            "issuer": {"CommonName": self.issuer},
            "subject": {"CommonName": self.subject},
            "not_before": self.not_before.to_string(),
            "not_after": self.not_after.to_string(),
            "dns_names": self.names,
            "is_ca": false,
        })
    }
}

/// Certificates by id.
#[derive(Default)]
pub(crate) struct Store {
    pub(crate) entries: BTreeMap<String, Entry>,
}

impl Store {
    /// Takes a bundle; the id, or the id of the one that has it already.
    pub(crate) fn add(&mut self, entry: Entry) -> Result<String, String> {
        let id = entry.stored.id.clone();
        if self.entries.contains_key(&id) {
            return Err(id);
        }
        self.entries.insert(id.clone(), entry);
        Ok(id)
    }

    /// Certificates of an organisation; all if it is empty.
    pub(crate) fn of<'a>(&'a self, org: &'a str) -> impl Iterator<Item = &'a Stored> {
        self.entries
            .values()
            .map(|entry| &entry.stored)
            .filter(move |stored| org.is_empty() || stored.org == org)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What is read from a certificate's DER.
struct Facts {
    names: Vec<String>,
    subject: String,
    issuer: String,
    not_before: Timestamp,
    not_after: Timestamp,
}

/// One element: tag, content, rest.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length = digits
            .iter()
            .try_fold(0usize, |n, &d| n.checked_mul(256)?.checked_add(usize::from(d)))?;
        (length, rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Elements in a row.
fn elements(mut der: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (tag, content, rest) = element(der)?;
        der = rest;
        Some((tag, content))
    })
}

impl Facts {
    fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate, _) = element(der)?;
        let (_, signed, _) = element(certificate)?;
        // Version (explicit tag 0, optional), serial number, algorithm, issuer, validity, subject, key, extensions.
        let mut parts = elements(signed).filter(|(tag, _)| *tag != 0xa0).skip(2);
        let (_, issuer) = parts.next()?;
        let (_, validity) = parts.next()?;
        let (_, subject) = parts.next()?;
        let mut times = elements(validity);
        let not_before = time(times.next()?)?;
        let not_after = time(times.next()?)?;
        let subject = common_name(subject).unwrap_or_default();
        let mut names = Vec::new();
        if let Some((_, extensions)) = parts.find(|(tag, _)| *tag == 0xa3) {
            let (_, list, _) = element(extensions)?;
            for (_, extension) in elements(list) {
                let mut fields = elements(extension);
                // 2.5.29.17: alternative names; those with tag 2 are DNS names.
                if fields.next()?.1 == [0x55, 0x1d, 0x11]
                    && let Some((_, octets)) = fields.find(|(tag, _)| *tag == 4)
                {
                    let (_, alternatives, _) = element(octets)?;
                    names.extend(
                        elements(alternatives)
                            .filter(|(tag, _)| *tag == 0x82)
                            .map(|(_, name)| String::from_utf8_lossy(name).into_owned()),
                    );
                }
            }
        }
        Some(Self {
            names,
            issuer: common_name(issuer).unwrap_or_default(),
            subject,
            not_before,
            not_after,
        })
    }
}

/// 2.5.4.3 of a name.
fn common_name(name: &[u8]) -> Option<String> {
    elements(name).find_map(|(_, set)| {
        let (_, pair, _) = element(set)?;
        let mut fields = elements(pair);
        (fields.next()?.1 == [0x55, 0x04, 0x03])
            .then(|| fields.next())
            .flatten()
            .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
    })
}

/// UTCTime (two digits for the year) or GeneralizedTime, always UTC here.
fn time((tag, text): (u8, &[u8])) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let full = match tag {
        0x17 => {
            let century = if text.get(..2)?.parse::<u8>().ok()? < 50 {
                "20"
            } else {
                "19"
            };
            format!("{century}{text}")
        }
        _ => text.to_owned(),
    };
    let part = |range| full.get(range);
    format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0..4)?,
        part(4..6)?,
        part(6..8)?,
        part(8..10)?,
        part(10..12)?,
        part(12..14)?
    )
    .parse()
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_known_by_its_leaf() {
        let made = rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).unwrap();
        let pem = format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem());
        let entry = read(pem.as_bytes(), "org1").unwrap();
        assert_eq!(
            entry.stored.id,
            format!("org1{}", hex(&Sha256::digest(made.cert.der())))
        );
        assert!(entry.stored.has_private);
        assert_eq!(entry.stored.names, ["a.example.com"]);
        assert!(entry.stored.not_after > Timestamp::now());
        let bare = read(made.cert.pem().as_bytes(), "org1").unwrap();
        assert!(!bare.stored.has_private);
        assert_eq!(bare.stored.id, entry.stored.id);
    }

    #[test]
    fn what_is_no_pair_is_told() {
        let one = rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).unwrap();
        let two = rcgen::generate_simple_self_signed(["b.example.com".to_owned()]).unwrap();
        let mut past = rcgen::CertificateParams::new(["a.example.com".to_owned()]).unwrap();
        past.not_after = rcgen::date_time_ymd(2001, 1, 1);
        let past = past.self_signed(&one.signing_key).unwrap();
        for (pem, says) in [
            (
                "hello".to_owned(),
                "Failed to decode certificate. It should be PEM encoded.",
            ),
            (past.pem(), "certificate is expired"),
            (
                format!("{}{}", one.cert.pem(), two.signing_key.serialize_pem()),
                "tls: private key does not match public key",
            ),
        ] {
            assert_eq!(read(pem.as_bytes(), "").err().as_deref(), Some(says));
        }
    }
}
