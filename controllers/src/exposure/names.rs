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

#[cfg(test)]
mod tests {
    use super::*;

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
