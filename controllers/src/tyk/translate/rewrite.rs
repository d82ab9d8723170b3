//! How the path of a request becomes the path that the backend sees.
//!
//! Without ReplaceFullPath nothing is rewritten: Tyk strips the listen path and puts the upstream URL's path in front.
//! With it the upstream URL has no path, and each method rewrites to *listen path + wanted path*: Tyk strips exactly
//! the listen path again, also where the wanted path starts with it. A rewrite sees the request's URL as it was sent
//! (encoded, with the query, maybe in absolute form) and captures one group only (Tyk looks for further groups in what
//! the first one captured).
//!
//! Tyk replaces references to secrets and variables in the URL that comes out, and in that of a request whose URL the
//! pattern does not fit (after another try on the unescaped URL). So each pattern fits every URL, and captures nothing that
//! holds a substitution token: of such a query or path the rest, from the end of the token on, is left out.

use std::fmt::Write as _;

use super::{
    Refusal,
    token_free::{TOKEN_FREE, ends_in_part},
};
use crate::tyk::verdict::{ApiPlan, OperationPlan};

/// `urlRewrite` of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rewrite {
    pub(super) pattern: String,
    pub(super) to: String,
}

/// Scheme and host of a request line in absolute form.
const ABSOLUTE: &str = "^(?:[a-z]+://[^/?#]*)?";

/// Whether a method's path is replaced as a whole, so that the upstream URL must be without a path.
fn whole(plan: &ApiPlan) -> bool {
    plan.operations.values().any(replaces)
}

fn replaces(operation: &OperationPlan) -> bool {
    operation.full_path.is_some() && operation.redirect.is_none()
}

/// Path of the upstream URL and of every target; empty for `/`.
pub(super) fn upstream_path(plan: &ApiPlan) -> &str {
    if whole(plan) {
        return "";
    }
    without_root(plan.prefix.as_deref().unwrap_or(&plan.path))
}

fn without_root(path: &str) -> &str {
    if path == "/" { "" } else { path }
}

/// The rewrite that a method needs, if any.
pub(super) fn rewrite(plan: &ApiPlan, operation: &OperationPlan) -> Result<Option<Rewrite>, Refusal> {
    if !whole(plan) || operation.redirect.is_some() {
        return Ok(None);
    }
    let listen = without_root(&plan.path);
    let (pattern, replacement) = match (&operation.full_path, plan.prefix.as_deref()) {
        (Some(full), _) => {
            path(full, "the replacement of the full path")?;
            (format!(r"^[^?]*(\?{})?.*$", *TOKEN_FREE), full.as_str())
        }
        // What strip leaves is what the backend should see.
        (None, Some("/")) => return Ok(None),
        (None, None) if listen.is_empty() => return Ok(None),
        (None, None) => (format!("{ABSOLUTE}({}).*$", *TOKEN_FREE), ""),
        (None, Some(prefix)) => {
            path(prefix, "the replacement of the prefix")?;
            let rest = if ends_in_part(prefix) {
                // What the client sends must not complete the token that the prefix begins.
                format!("(?:[/?]{})?", *TOKEN_FREE)
            } else {
                TOKEN_FREE.clone()
            };
            // An API is also reached under its id, where the path is another one.
            let pattern = format!("{ABSOLUTE}(?:{}({rest}).*|.*)$", encoded(listen));
            (pattern, prefix)
        }
    };
    if group(listen) {
        return Err(Refusal::Group {
            place: "the path of the match",
        });
    }
    Ok(Some(Rewrite {
        pattern,
        to: format!("{listen}{replacement}$1"),
    }))
}

fn path(value: &str, place: &'static str) -> Result<(), Refusal> {
    if group(value) {
        return Err(Refusal::Group { place });
    }
    let fits = value.starts_with('/') && !value.contains(|c: char| matches!(c, '?' | '#') || c.is_control());
    if fits {
        Ok(())
    } else {
        Err(Refusal::Path { place })
    }
}

/// `$` followed by a digit.
pub(in crate::tyk) fn group(text: &str) -> bool {
    text.split('$')
        .skip(1)
        .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A pattern for a path as it may be sent: each byte as itself or percent-encoded. Listen paths are compared decoded.
fn encoded(path: &str) -> String {
    let mut pattern = String::new();
    for byte in path.bytes() {
        let plain = match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'/' | b'-' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            // `\x{..}` would be a brace in a document that other tools take for a template.
            _ => format!("\\x{byte:02x}"),
        };
        let _ = write!(pattern, "(?:{plain}|%{})", hexadecimal(byte));
    }
    pattern
}

/// Two hexadecimal digits of either case.
fn hexadecimal(byte: u8) -> String {
    [byte >> 4, byte & 15]
        .iter()
        .fold(String::new(), |mut text, digit| {
            let _ = match digit {
                0..=9 => write!(text, "{digit}"),
                _ => write!(text, "[{digit:x}{digit:X}]"),
            };
            text
        })
}
