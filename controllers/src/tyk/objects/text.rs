//! What a user's text must not hold before it may stand in a Tyk document: substitution tokens, control characters, and
//! whatever hostnames, header names and paths are not made of. Pure questions about one text.

use std::net::Ipv4Addr;

/// Beginnings of references that a Tyk Gateway replaces by secrets, context variables or the content of files: when it
/// loads a document, or while it serves a request.
pub const TOKENS: [&str; 9] = [
    "$secret_",
    "$tyk_",
    "env://",
    "vault://",
    "consul://",
    "secrets://",
    "file://",
    "kv://",
    "$kv{",
];

/// The token that a text holds, whatever its case.
pub fn token(text: &str) -> Option<&'static str> {
    // Every token has one of the two; most texts have neither.
    if !text.contains('$') && !text.contains("://") {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    TOKENS.into_iter().find(|token| lower.contains(token))
}

/// Why a text may not stand in a document at all.
pub(super) fn unsafe_text(text: &str) -> Option<String> {
    if let Some(token) = token(text) {
        return Some(format!(
            "must not hold {token:?}, which Tyk replaces by a value of its own"
        ));
    }
    text.chars()
        .any(char::is_control)
        .then(|| "must not hold control characters".to_owned())
}

/// A hostname in lower case, or what is wrong with it. A wildcard is a whole first label and only allowed on request.
pub(super) fn hostname(text: &str, wildcard: bool) -> Result<String, &'static str> {
    let name = text.to_ascii_lowercase();
    let rest = match name.strip_prefix("*.") {
        Some(rest) if wildcard => rest,
        Some(_) => return Err("must not be a wildcard"),
        None => &name,
    };
    if name.len() > 253 || !rest.split('.').all(is_label) {
        return Err("must be a DNS name of letters, digits and hyphens");
    }
    if rest.parse::<Ipv4Addr>().is_ok() {
        return Err("must be a DNS name, not an IP address");
    }
    Ok(name)
}

/// A label of a DNS name, in lower case.
pub(in crate::tyk) fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A name of a Kubernetes object: a DNS name in lower case, whose labels may be longer than DNS allows. What becomes a
/// part of a host (Services, namespaces) is checked by [`is_label`].
pub(in crate::tyk) fn is_object_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// The canonical spelling of a header name (`X-Request-Id`), as Go's `net/http` gives it; `None` if it is none.
pub(super) fn header_name(text: &str) -> Option<String> {
    if !(1..=256).contains(&text.len()) {
        return None;
    }
    let mut upper = true;
    text.chars()
        .map(|c| {
            let fits = c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            let spelled = if upper {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            };
            upper = c == '-';
            fits.then_some(spelled)
        })
        .collect()
}

/// Which path it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathUse {
    /// A match: compared with decoded request paths, so an escape would match nothing that was meant.
    Match,
    /// Part of a URL: goes out as it is.
    Url,
}

/// Longest path, in bytes, as the CRD has it.
const MAX_PATH: usize = 1024;

/// What is wrong with a path, or nothing.
pub(super) fn path(text: &str, usage: PathUse) -> Option<String> {
    let said = |what: &str| Some(what.to_owned());
    if !text.starts_with('/') {
        return said("must start with /");
    }
    if text.len() > MAX_PATH {
        return said("must not be longer than 1024 bytes");
    }
    if let Some(why) = unsafe_text(text) {
        return Some(why);
    }
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        match c {
            c if c.is_ascii_alphanumeric() || "/-._~!$&'()*+,;=:@".contains(c) => {}
            '%' if usage == PathUse::Match => {
                return said("must not hold %: Tyk matches the decoded path; match a shorter prefix");
            }
            '%' => {
                let escape = rest
                    .get(..2)
                    .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
                if escape.is_none() {
                    return said("must not hold a % that two hexadecimal digits do not follow");
                }
            }
            '?' => return said("must not hold a query; remove it from ? on"),
            '#' => return said("must not hold a fragment; remove it from # on"),
            '{' | '}' => return said("must not hold braces, which Tyk reads as a pattern"),
            ' ' => return said("must not hold spaces"),
            _ if usage == PathUse::Url => {
                return said(
                    "must be percent-encoded: letters, digits and -._~!$&'()*+,;=:@/ are allowed as they are",
                );
            }
            _ => return said("may hold letters, digits and -._~!$&'()*+,;=:@/ only"),
        }
    }
    let odd = text.split('/').skip(1);
    let count = text.split('/').count() - 1;
    for (index, segment) in odd.enumerate() {
        let last = index + 1 == count;
        if segment == "." || segment == ".." {
            return said("must not hold . or .. as a segment");
        }
        if segment.is_empty() && !last {
            return said("must not hold //");
        }
    }
    None
}

/// A path without trailing slashes; `/` stays.
pub(super) fn trimmed(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

/// Whether a `$` is followed by a digit: Tyk would read it as a captured group.
pub(super) fn has_group(text: &str) -> bool {
    text.as_bytes()
        .windows(2)
        .any(|pair| matches!(pair, [b'$', digit] if digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_are_found_anywhere_and_in_any_case() {
        for token_ in TOKENS {
            for text in [token_.to_owned(), format!("a {token_}x"), token_.to_uppercase()] {
                assert_eq!(token(&text), Some(token_), "{text}");
            }
        }
        for text in [
            "",
            "$5",
            "https://example.com",
            "$secre",
            "env:/x",
            "a$b",
            "tyk_",
            "$ tyk_",
        ] {
            assert_eq!(token(text), None, "{text}");
        }
    }

    #[test]
    fn hostnames() {
        for (text, wildcard, result) in [
            ("a.example.com", true, Ok("a.example.com")),
            ("A.Example.COM", true, Ok("a.example.com")),
            ("*.example.com", true, Ok("*.example.com")),
            ("localhost", true, Ok("localhost")),
            ("*.example.com", false, Err("must not be a wildcard")),
            ("10.0.0.1", true, Err("must be a DNS name, not an IP address")),
        ] {
            assert_eq!(hostname(text, wildcard).as_deref(), result.as_deref(), "{text}");
        }
        for text in [
            "",
            "*",
            "*.",
            "a.*.com",
            "**.a",
            "a..b",
            "-a.com",
            "a-.com",
            "a_b.com",
            "a.com.",
            "ä.com",
            "a:80",
            "a/b",
            "$secret_x.com",
            "[::1]",
        ] {
            assert!(hostname(text, true).is_err(), "{text}");
        }
    }

    #[test]
    fn header_names_are_canonical() {
        for (text, name) in [
            ("x-request-id", Some("X-Request-Id")),
            ("X-REQUEST-ID", Some("X-Request-Id")),
            ("etag", Some("Etag")),
            ("x_a-b", Some("X_a-B")),
            ("", None),
            ("a b", None),
            ("a:b", None),
            ("ä", None),
        ] {
            assert_eq!(header_name(text).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn paths() {
        for text in ["/", "/a", "/a/", "/a.b/c~d", "/a$b", "/...", "/a:b@c", "/a$1"] {
            assert_eq!(path(text, PathUse::Match), None, "{text}");
        }
        for text in [
            "",
            "a",
            "//",
            "/a//b",
            "/./a",
            "/a/..",
            "/a/.",
            "/a?b",
            "/a#b",
            "/a b",
            "/a{b",
            "/a}b",
            "/a%20b",
            "/ä",
            "/a\n",
            "/a\u{7f}",
            "/$tyk_context.x",
            "/a\\b",
            "/a|b",
            "/a\"b",
            "/a<b",
        ] {
            assert!(path(text, PathUse::Match).is_some(), "{text}");
        }
        assert_eq!(path("/a%20b", PathUse::Url), None);
        for text in ["/a%2", "/a%zz", "/ä", "/a%", "/%ä"] {
            assert!(path(text, PathUse::Url).is_some(), "{text}");
        }
        assert!(path(&format!("/{}", "a".repeat(1024)), PathUse::Match).is_some());
        assert_eq!(trimmed("/a//"), "/a");
        assert_eq!(trimmed("/"), "/");
        assert!(has_group("/a$1") && !has_group("/a$") && !has_group("/$a1"));
    }

    proptest! {
        /// A text that passes holds no token and no control character, and joining paths makes none.
        #[test]
        fn joined_paths_hold_no_token(a in "[/a-z$:%{}_.]{1,12}", b in "/(\\$|env|kv|secret_|:|/|tyk_|[a-z]){0,8}") {
            if path(&a, PathUse::Match).is_none() && path(&b, PathUse::Url).is_none() {
                prop_assert_eq!(token(&format!("{}{b}$1", trimmed(&a))), None);
            }
        }

        #[test]
        fn canonical_header_names_are_fixed_points(text in "[A-Za-z0-9_.$-]{1,20}") {
            let once = header_name(&text).unwrap();
            prop_assert_eq!(header_name(&once), Some(once.clone()));
            prop_assert!(once.eq_ignore_ascii_case(&text));
        }
    }
}
