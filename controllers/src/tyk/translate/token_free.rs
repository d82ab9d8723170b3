//! The pattern of a text that holds no substitution token: what a rewrite may capture of a client's URL.
//!
//! Tyk looks through the URL that a rewrite makes, and replaces the references to secrets and variables in it, also those
//! that a client sent. So a rewrite captures with this pattern and never with `.*`.

use std::{collections::BTreeSet, fmt::Write as _, sync::LazyLock};

use crate::tyk::objects::text::TOKENS;

/// A pattern without groups for exactly the texts that hold no token which Tyk replaces in a URL. Where it is followed by
/// `.*$`, it takes the longest beginning without one.
///
/// Those are the tokens with a `$`. The others (`env://…`) count where Tyk loads a document, and as a whole value alone: a
/// rewritten URL begins with a slash.
pub(super) static TOKEN_FREE: LazyLock<String> = LazyLock::new(|| pattern(&tokens()));

/// Tokens that Tyk replaces in a URL. None holds a second `$`: the pattern is built on that.
fn tokens() -> Vec<&'static str> {
    TOKENS
        .into_iter()
        .filter(|token| token.starts_with('$'))
        .collect()
}

/// Returns whether a text ends in the beginning of a token, which what follows could complete.
pub(super) fn ends_in_part(text: &str) -> bool {
    text.rfind('$')
        .and_then(|at| text.get(at..))
        .is_some_and(|end| tokens().iter().any(|token| token.starts_with(end)))
}

/// A text is a list of characters other than `$` and of beginnings of tokens, the last of a run being left by a character
/// that does not go on with it; at the end of the text the last may stay as it is.
fn pattern(tokens: &[&str]) -> String {
    let tails: Vec<&str> = tokens
        .iter()
        .filter_map(|token| token.strip_prefix('$'))
        .collect();
    let (part, left) = (part(&tails, ""), left(&tails, ""));
    format!(r"(?:[^$]|(?:\${part})*\${left})*(?:\${part})*")
}

/// Characters with which some token goes on.
fn next(tails: &[&str], begun: &str) -> BTreeSet<char> {
    let rest = tails.iter().filter_map(|tail| tail.strip_prefix(begun));
    rest.filter_map(|rest| rest.chars().next()).collect()
}

/// The beginnings, longer by one character, that are no whole token yet.
fn longer(tails: &[&str], begun: &str) -> Vec<(char, String)> {
    let longer = next(tails, begun).into_iter().map(|c| (c, format!("{begun}{c}")));
    longer
        .filter(|(_, begun)| !tails.contains(&begun.as_str()))
        .collect()
}

/// How much of a token may have begun, as long as none is whole.
fn part(tails: &[&str], begun: &str) -> String {
    let ways: Vec<String> = longer(tails, begun)
        .into_iter()
        .map(|(c, longer)| format!("{}{}", literal(c), part(tails, &longer)))
        .collect();
    if ways.is_empty() {
        return String::new();
    }
    format!("(?:{})?", ways.join("|"))
}

/// How a token that has begun is left: by a character with which none goes on.
fn left(tails: &[&str], begun: &str) -> String {
    let mut ways = String::from("[^$");
    ways.extend(next(tails, begun).into_iter().map(literal));
    ways.push(']');
    for (c, longer) in longer(tails, begun) {
        let _ = write!(ways, "|{}{}", literal(c), left(tails, &longer));
    }
    format!("(?:{ways})")
}

/// A character in a pattern. A brace would be one in a document that other tools take for a template.
fn literal(c: char) -> String {
    if c.is_ascii_alphanumeric() || c == '_' {
        c.to_string()
    } else {
        format!(r"\x{:02x}", u32::from(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    #[test]
    fn tokens_of_a_url_are_ascii_and_hold_one_dollar() {
        let tokens = tokens();
        assert!(tokens.len() >= 3);
        for token in tokens {
            assert!(token.is_ascii() && token.matches('$').count() == 1, "{token}");
            // What a captured path or query begins with completes none.
            assert!(!token.contains(['/', '?']), "{token}");
        }
    }

    /// It stands in the document once for each method.
    #[test]
    fn the_pattern_is_short_and_holds_no_brace() {
        assert!(TOKEN_FREE.len() < 500, "{}: {}", TOKEN_FREE.len(), *TOKEN_FREE);
        assert!(!TOKEN_FREE.contains(['{', '}']), "{}", *TOKEN_FREE);
    }

    #[test]
    fn texts_that_end_in_a_part_of_a_token_are_known() {
        for text in ["/a$", "/a$t", "/$$tyk", "/$secret", "$kv"] {
            assert!(ends_in_part(text), "{text}");
        }
        for text in ["", "/", "/a", "/a$x", "/a$tykk", "/t", "/$/"] {
            assert!(!ends_in_part(text), "{text}");
        }
    }

    /// Texts that are made of tokens and their parts.
    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "$", "$$", "s", "se", "cret", "secret", "t", "yk", "tyk", "k", "v", "kv", "_", "{",
                    "_env.x", "?", "/", "=", "x", "ü", "%24", "$secret_", "$tyk_", "$kv{", "$secret", "$tyk",
                    "$kv", "$sec", "$ty", "$k", "kv://",
                ])
                .prop_map(str::to_owned),
                "[$sectykv_{]",
                any::<char>().prop_map(String::from),
            ],
            0..12,
        )
        .prop_map(|parts| parts.concat())
    }

    fn holds(text: &str) -> bool {
        tokens().iter().any(|token| text.contains(token))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        /// The same as to look for each token.
        #[test]
        fn a_text_fits_exactly_if_it_holds_no_token(text in text()) {
            static WHOLE: LazyLock<Regex> =
                LazyLock::new(|| Regex::new(&format!("(?s)^(?:{})$", *TOKEN_FREE)).unwrap());
            prop_assert_eq!(WHOLE.is_match(&text), !holds(&text), "{:?}", text);
        }

        /// What a rewrite captures: everything, or what comes before the last character of the first token.
        #[test]
        fn the_longest_beginning_without_a_token_is_captured(text in text()) {
            static BEGINNING: LazyLock<Regex> =
                LazyLock::new(|| Regex::new(&format!("(?s)^({}).*$", *TOKEN_FREE)).unwrap());
            let captures = BEGINNING.captures(&text).unwrap();
            let captured = captures.get(1).unwrap().as_str();
            let longest = text
                .char_indices()
                .map(|(at, c)| at + c.len_utf8())
                .take_while(|end| !holds(&text[..*end]))
                .last()
                .unwrap_or_default();
            prop_assert_eq!(captured, &text[..longest]);
        }
    }
}
