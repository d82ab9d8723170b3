//! Names and label values of generated objects. Pure text.

use sha2::{Digest, Sha256};

use crate::hex::hex;

/// Label that every generated object carries: the bucket's name, as a label value ([`label_value`]).
pub const BUCKET_LABEL: &str = "routewright.dev/bucket";

/// Longest name of a Kubernetes object of the kinds that are generated.
pub const MAX_NAME: usize = 253;

/// Longest label value.
pub const MAX_LABEL_VALUE: usize = 63;

/// Name of the object that exposes a bucket's website. May be longer than [`MAX_NAME`]: the caller refuses it then.
pub fn child_name(bucket: &str) -> String {
    format!("{bucket}-website")
}

/// A valid label value for an object's name.
///
/// The name itself when it fits. Otherwise its beginning and ten hexadecimal digits of its SHA-256, so that two long
/// names with the same beginning stay apart.
pub fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL_VALUE {
        return name.to_owned();
    }
    let digest = hex(Sha256::digest(name).iter().take(5));
    // Object names are ASCII; anything else is left out rather than cut in half.
    let start: String = name
        .chars()
        .filter(char::is_ascii)
        .take(MAX_LABEL_VALUE - 1 - digest.len())
        .collect();
    format!(
        "{}-{digest}",
        start.trim_end_matches(|c: char| !c.is_ascii_alphanumeric())
    )
}

/// Whether a text is a DNS-1123 subdomain, as the names of Secrets and IngressClasses are.
pub fn is_subdomain(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= MAX_NAME && text.split('.').all(label)
}

/// Whether a text is a label value; an empty one is.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}

/// Whether a text is the key of a label or an annotation: a word, perhaps behind a DNS name and a slash.
pub fn is_metadata_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(&prefix.to_ascii_lowercase()) && is_word(name),
        None => is_word(text),
    }
}

/// At most 63 letters, digits, `-`, `_` and `.`, a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_LABEL_VALUE
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_values_and_names_are_those_that_the_api_server_takes() {
        let long = "a".repeat(64);
        for (text, subdomain, value, key) in [
            ("nginx", true, true, true),
            ("cert.v1", true, true, true),
            ("", false, true, false),
            ("Team_A", false, true, true),
            ("-a", false, false, false),
            ("a-", false, false, false),
            ("a b", false, false, false),
            ("a..b", false, true, true),
            ("example.org/team", false, false, true),
            ("Example.org/team", false, false, true),
            ("/team", false, false, false),
            ("example.org/", false, false, false),
            ("a/b/c", false, false, false),
            (long.as_str(), true, false, false),
        ] {
            assert_eq!(is_subdomain(text), subdomain, "{text}");
            assert_eq!(is_label_value(text), value, "{text}");
            assert_eq!(is_metadata_key(text), key, "{text}");
        }
    }

    #[test]
    fn short_names_are_their_own_label_value() {
        assert_eq!(label_value("blog"), "blog");
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
    }

    #[test]
    fn long_names_are_shortened_and_stay_apart() {
        let one = label_value(&format!("{}one", "a.".repeat(60)));
        let two = label_value(&format!("{}two", "a.".repeat(60)));
        assert_ne!(one, two);
        for value in [&one, &two] {
            assert!(value.len() <= MAX_LABEL_VALUE, "{value}");
            assert!(value.starts_with("a.a.") && !value.contains(".-"), "{value}");
        }
        assert_eq!(one, label_value(&format!("{}one", "a.".repeat(60))), "stable");
    }
}
