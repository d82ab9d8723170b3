//! Secrets of type `kubernetes.io/tls`: certificate chain and key are parsed, compared and forgotten; an identity stays.

use std::{collections::BTreeSet, sync::Arc};

use rustls::{
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};

use super::{Fingerprint, core::Certificate, hex, text::hostname};

/// The most bytes of a chain or a key: it is read whole, and uploaded for each organisation.
const MOST_BYTES: usize = 64 * 1024;

/// The certificate of a chain and its key, or why they are none. Messages never quote content.
pub(super) fn certificate(chain: Option<&[u8]>, key: Option<&[u8]>) -> Result<Certificate, String> {
    let chain = chain
        .filter(|bytes| !bytes.is_empty())
        .ok_or("tls.crt is missing or empty")?;
    let key = key
        .filter(|bytes| !bytes.is_empty())
        .ok_or("tls.key is missing or empty")?;
    for (name, bytes) in [("tls.crt", chain), ("tls.key", key)] {
        if bytes.len() > MOST_BYTES {
            return Err(format!(
                "{name} has {} bytes, {MOST_BYTES} are the most: leave out certificates that do not belong to the chain",
                bytes.len()
            ));
        }
    }
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|_| "tls.crt is no valid PEM")?;
    let leaf = certificates
        .first()
        .ok_or("tls.crt holds no PEM certificate")?
        .clone();
    let private = PrivateKeyDer::from_pem_slice(key).map_err(|_| "tls.key holds no valid PEM private key")?;

    let mut bundle = Sha256::new();
    for part in certificates
        .iter()
        .map(AsRef::as_ref)
        .chain([private.secret_der()])
    {
        // Lengths keep two different bundles from having one digest.
        bundle.update((part.len() as u64).to_be_bytes());
        bundle.update(part);
    }

    let signing = default_provider()
        .key_provider
        .load_private_key(private)
        .map_err(
            |_| "tls.key holds a private key of a kind that is not supported; use RSA, ECDSA or Ed25519",
        )?;
    CertifiedKey::new(certificates, signing)
        .keys_match()
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                "tls.key does not belong to the first certificate of tls.crt"
            }
            _ => "tls.crt does not begin with a valid certificate",
        })?;
    Ok(Certificate {
        leaf: Fingerprint::of(leaf.as_ref()),
        bundle: Fingerprint(hex(&bundle.finalize())),
        names: names(&leaf),
    })
}

/// Names that Tyk serves a leaf for: all DNS names among its alternative names, and its common name. Go takes names that
/// the Web's rules do not, such as `*.org`: so they are read as they stand.
fn names(leaf: &CertificateDer<'_>) -> Arc<[String]> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(leaf) else {
        return Arc::default();
    };
    let alternative = alternative_names(leaf).into_iter().map(str::to_ascii_lowercase);
    let common = common_names(parsed.subject())
        .into_iter()
        .map(|name| name.to_ascii_lowercase());
    let names: BTreeSet<String> = alternative
        .chain(common.filter(|name| hostname(name, true).is_ok()))
        .collect();
    names.into_iter().collect()
}

/// The next value of a DER text: tag, contents, and what follows.
fn der(text: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = text.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x82 => (
            usize::from(*rest.first()?) << 8 | usize::from(*rest.get(1)?),
            rest.get(2..)?,
        ),
        _ => return None,
    };
    Some((*tag, rest.get(..length)?, rest.get(length..)?))
}

/// DNS names of the extension subjectAltName of a certificate that is known to be well-formed.
fn alternative_names(leaf: &[u8]) -> Vec<&str> {
    /// id-ce-subjectAltName
    const NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x1d, 0x11];
    const CRITICAL: u8 = 0x01;
    const DNS: u8 = 0x82;
    let mut found = Vec::new();
    let starts = leaf
        .windows(NAME.len())
        .enumerate()
        .filter(|(_, window)| *window == NAME)
        .map(|(at, _)| at + NAME.len());
    for at in starts {
        let mut extension = der(leaf.get(at..).unwrap_or_default());
        if let Some((CRITICAL, _, rest)) = extension {
            extension = der(rest);
        }
        let list = extension.and_then(|(_, octets, _)| der(octets));
        let mut rest = list.map(|(_, names, _)| names).unwrap_or_default();
        while let Some((tag, name, more)) = der(rest) {
            if tag == DNS
                && let Ok(name) = std::str::from_utf8(name)
            {
                found.push(name);
            }
            rest = more;
        }
    }
    found
}

/// Common names in a subject: each is the attribute's identifier, the tag of its kind of text, a length and the text. A
/// longer text than 127 bytes is no hostname.
fn common_names(subject: &[u8]) -> Vec<&str> {
    /// id-at-commonName
    const NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
    let starts = subject
        .windows(NAME.len())
        .enumerate()
        .filter(|(_, window)| *window == NAME)
        .map(|(at, _)| at + NAME.len());
    starts
        .filter_map(|at| {
            let (_, rest) = subject.get(at..)?.split_first()?;
            let (length, rest) = rest.split_first()?;
            std::str::from_utf8(rest.get(..usize::from(*length))?).ok()
        })
        .collect()
}

impl Fingerprint {
    /// The SHA-256 of some bytes in lower-case hex.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex(&Sha256::digest(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn self_signed(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_matching_pair_has_the_fingerprint_of_its_leaf() {
        let made = rcgen::generate_simple_self_signed(["a.example.com".to_owned()]).unwrap();
        let (other, _) = self_signed("b.example.com");
        let chain = format!("{}{other}", made.cert.pem());
        let key = made.signing_key.serialize_pem();
        let found = certificate(Some(chain.as_bytes()), Some(key.as_bytes())).unwrap();
        assert_eq!(found.leaf, Fingerprint::of(made.cert.der()));
        let without_chain = certificate(Some(made.cert.pem().as_bytes()), Some(key.as_bytes())).unwrap();
        assert_eq!(without_chain.leaf, found.leaf);
        assert_ne!(
            without_chain.bundle, found.bundle,
            "a longer chain is to be uploaded again"
        );
    }

    #[test]
    fn what_is_no_pair_is_told_without_its_content() {
        let (chain, key) = self_signed("a.example.com");
        let (_, other) = self_signed("b.example.com");
        let cut = chain.replacen("MII", "!!!", 1);
        let broken = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        for (chain, key, says) in [
            (None, Some(key.as_str()), "tls.crt is missing or empty"),
            (Some(""), Some(key.as_str()), "tls.crt is missing or empty"),
            (Some(chain.as_str()), None, "tls.key is missing or empty"),
            (
                Some("hello"),
                Some(key.as_str()),
                "tls.crt holds no PEM certificate",
            ),
            (Some(cut.as_str()), Some(key.as_str()), "tls.crt is no valid PEM"),
            (
                Some(broken),
                Some(key.as_str()),
                "tls.crt does not begin with a valid certificate",
            ),
            (
                Some(chain.as_str()),
                Some("hello"),
                "tls.key holds no valid PEM private key",
            ),
            (
                Some(chain.as_str()),
                Some(other.as_str()),
                "tls.key does not belong to the first certificate of tls.crt",
            ),
        ] {
            let said = certificate(chain.map(str::as_bytes), key.map(str::as_bytes)).unwrap_err();
            assert_eq!(said, says);
        }
    }

    #[test]
    fn names_are_those_that_tyk_serves_the_leaf_for() {
        let mut params = rcgen::CertificateParams::new(
            ["Shop.example.com", "*.b.example.com", "*.org", "*"].map(str::to_owned),
        )
        .unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "Someone");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "bank.example.com");
        let key = rcgen::KeyPair::generate().unwrap();
        let made = params.self_signed(&key).unwrap();
        let found = certificate(Some(made.pem().as_bytes()), Some(key.serialize_pem().as_bytes())).unwrap();
        assert_eq!(
            *found.names,
            [
                "*",
                "*.b.example.com",
                "*.org",
                "bank.example.com",
                "shop.example.com"
            ]
        );
        for (host, fits) in [
            ("shop.example.com", true),
            ("x.b.example.com", true),
            ("y.x.b.example.com", false),
            ("b.example.com", false),
            ("*.example.com", true),
            ("*.b.example.com", true),
            ("*.x.b.example.com", false),
            ("*.other.com", false),
            // As the conformance suite of Gateway API has it
            ("second-example.org", true),
            ("a.second-example.org", false),
        ] {
            assert_eq!(found.is_for(host), fits, "{host}");
        }
    }

    #[test]
    fn a_chain_is_bounded_in_bytes() {
        let (chain, key) = self_signed("a.b");
        let long = chain.repeat(MOST_BYTES / chain.len() + 1);
        let said = certificate(Some(long.as_bytes()), Some(key.as_bytes())).unwrap_err();
        assert!(said.contains("65536 are the most"), "{said}");
        let whole = chain.repeat(MOST_BYTES / chain.len());
        assert!(certificate(Some(whole.as_bytes()), Some(key.as_bytes())).is_ok());
    }
}
