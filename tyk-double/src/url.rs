//! Paths as Go's standard library and Tyk treat them: decoded for comparing, kept as sent where nothing forces otherwise.

use crate::server::decoded;

/// A path percent-encoded as Go writes it.
pub(crate) fn encoded(path: &str) -> String {
    use std::fmt::Write as _;
    path.bytes().fold(String::new(), |mut text, byte| {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
        if plain {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// The rest of a path as sent behind so many bytes of the decoded path, with a slash at its start unless empty.
pub(crate) fn behind(raw: &str, bytes: usize) -> String {
    let (mut at, mut seen) = (0, 0);
    let text = raw.as_bytes();
    while seen < bytes && at < text.len() {
        let escape = text.get(at) == Some(&b'%')
            && raw
                .get(at + 1..at + 3)
                .is_some_and(|pair| pair.bytes().all(|c| c.is_ascii_hexdigit()));
        at += if escape { 3 } else { 1 };
        seen += 1;
    }
    let rest = raw.get(at..).unwrap_or_default();
    if rest.is_empty() || rest.starts_with('/') {
        return rest.to_owned();
    }
    let plain = decoded(rest);
    if plain.starts_with('/') {
        encoded(&plain)
    } else {
        format!("/{rest}")
    }
}

/// Path of a target and what is left of the request's.
pub(crate) fn joined(target: &str, rest: &str) -> String {
    let target = if target.contains('%') {
        encoded(&decoded(target))
    } else {
        target.to_owned()
    };
    let base = target.trim_end_matches('/');
    let tail = rest.strip_prefix('/').unwrap_or(rest);
    match (base.is_empty(), tail.is_empty()) {
        (true, _) => format!("/{tail}"),
        (false, true) => target,
        (false, false) => format!("{base}/{tail}"),
    }
}

/// The path without `//` and dots, if that is another one. A slash at the end stays.
pub(crate) fn cleaned(path: &str) -> Option<String> {
    if !path.contains("//") && !path.contains("/.") {
        return None;
    }
    let mut clean = crate::fill::cleaned(path);
    if path.ends_with('/') && clean != "/" {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

/// Scheme, authority, path of an absolute URL.
pub(crate) fn split(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    (!authority.is_empty()).then_some((scheme, authority, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_strip_leaves() {
        assert_eq!(behind("/orders/a%2Fb", 7), "/a%2Fb");
        assert_eq!(behind("/orders%2Fa", 7), "/a");
        assert_eq!(behind("/or%64ers/x", 7), "/x");
        assert_eq!(behind("/orders-archive", 7), "/-archive");
        assert_eq!(behind("/a%2Fb", 1), "/a%2Fb");
        assert_eq!(behind("/orders", 7), "");
    }

    #[test]
    fn paths_are_joined() {
        for (target, rest, whole) in [
            ("/new", "", "/new"),
            ("/new", "/", "/new"),
            ("/new/", "/x", "/new/x"),
            ("", "/orders/", "/orders/"),
            ("", "", "/"),
            ("/a%2Fb", "/x", "/a/b/x"),
        ] {
            assert_eq!(joined(target, rest), whole);
        }
    }

    #[test]
    fn only_what_is_unclean_is_cleaned() {
        assert_eq!(cleaned("/a/b/"), None);
        assert_eq!(cleaned("/a//b/"), Some("/a/b/".to_owned()));
        assert_eq!(cleaned("/a/../b"), Some("/b".to_owned()));
    }
}
