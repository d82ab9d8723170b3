//! Just enough of S3 to put an object: one signed PUT (AWS signature version 4, path style).

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::tools::hex;

/// An access key. Its secret is never printed.
#[derive(Clone)]
pub struct Key {
    /// Access key id.
    pub id: String,
    /// Secret access key.
    pub secret: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The headers of a signed request without query, `Host` included. `path` must need no escaping; `stamp` is the time
/// as `YYYYMMDD'T'HHMMSS'Z'`.
pub fn sign(
    key: &Key,
    region: &str,
    method: &str,
    host: &str,
    path: &str,
    body: &[u8],
    stamp: &str,
) -> Vec<(String, String)> {
    let day = stamp.get(..8).unwrap_or(stamp);
    let payload = hex(&Sha256::digest(body));
    let signed = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{payload}\nx-amz-date:{stamp}\n\n{signed}\n{payload}"
    );
    let scope = format!("{day}/{region}/s3/aws4_request");
    let text = format!(
        "AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}",
        hex(&Sha256::digest(canonical))
    );
    let mut derived = mac(format!("AWS4{}", key.secret).as_bytes(), day);
    for part in [region, "s3", "aws4_request"] {
        derived = mac(&derived, part);
    }
    let signature = hex(&mac(&derived, &text));
    let authorization = format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={signed}, Signature={signature}",
        key.id
    );
    [
        ("Host", host.to_owned()),
        ("x-amz-content-sha256", payload),
        ("x-amz-date", stamp.to_owned()),
        ("Authorization", authorization),
    ]
    .map(|(n, v)| (n.to_owned(), v))
    .to_vec()
}

/// The present moment as a signature wants it.
pub fn stamp() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    // HMAC takes keys of every length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyed_hash_is_the_standard_one() {
        // RFC 4231, case 2
        assert_eq!(
            hex(&mac(b"Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn the_signature_depends_on_everything_and_the_secret_is_not_shown() {
        let key = Key {
            id: "GK1".to_owned(),
            secret: "hidden".to_owned(),
        };
        let at = "20260102T030405Z";
        let base = sign(&key, "garage", "PUT", "h", "/b/k", b"x", at);
        for other in [
            sign(&key, "other", "PUT", "h", "/b/k", b"x", at),
            sign(&key, "garage", "GET", "h", "/b/k", b"x", at),
            sign(&key, "garage", "PUT", "i", "/b/k", b"x", at),
            sign(&key, "garage", "PUT", "h", "/b/l", b"x", at),
            sign(&key, "garage", "PUT", "h", "/b/k", b"y", at),
        ] {
            assert_ne!(base[3], other[3]);
        }
        assert!(!format!("{key:?} {base:?}").contains("hidden"));
    }
}
