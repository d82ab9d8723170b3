//! Secrets of type `kubernetes.io/tls`: certificate chain and key are parsed, compared and forgotten; an identity stays.

use rustls::{
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};

use super::{Fingerprint, core::Certificate, hex};

/// The certificate of a chain and its key, or why they are none. Messages never quote content.
pub(super) fn certificate(chain: Option<&[u8]>, key: Option<&[u8]>) -> Result<Certificate, String> {
    let chain = chain
        .filter(|bytes| !bytes.is_empty())
        .ok_or("tls.crt is missing or empty")?;
    let key = key
        .filter(|bytes| !bytes.is_empty())
        .ok_or("tls.key is missing or empty")?;
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
    })
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
}
