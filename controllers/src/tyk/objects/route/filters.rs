//! Filters of a rule: which of them Tyk can do, and the values that may not stand in a document.

use super::{Filters, HeaderEdit, PathRewrite, Redirect};
use crate::tyk::objects::{
    Problem,
    text::{self, PathUse},
    walk::{Name, Node},
};

/// Filter types that are supported, with the field that configures them.
const SUPPORTED: [(&str, &str); 4] = [
    ("RequestHeaderModifier", "requestHeaderModifier"),
    ("ResponseHeaderModifier", "responseHeaderModifier"),
    ("RequestRedirect", "requestRedirect"),
    ("URLRewrite", "urlRewrite"),
];

/// Filter types that are not, with their field and the way out.
const UNSUPPORTED: [(&str, &str, &str); 4] = [
    (
        "RequestMirror",
        "requestMirror",
        "RequestMirror is not supported; remove the filter",
    ),
    (
        "CORS",
        "cors",
        "CORS is not supported; remove the filter and set CORS in an attached TykOasApiDefinition",
    ),
    (
        "ExternalAuth",
        "externalAuth",
        "ExternalAuth is not supported; remove the filter and set authentication in an attached TykOasApiDefinition",
    ),
    (
        "ExtensionRef",
        "extensionRef",
        "ExtensionRef is not supported; remove the filter and attach a TykOasApiDefinition to the route",
    ),
];

/// Codes that a redirect may have.
const REDIRECT_CODES: [u32; 5] = [301, 302, 303, 307, 308];

/// The filters of a rule, merged.
pub(super) fn read(rule: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Filters {
    let mut filters = Filters::default();
    let mut seen: Vec<&str> = Vec::new();
    rule.each("filters", problems, |filter, problems| -> Option<()> {
        let type_ = filter.required("type", problems)?;
        if let Some((_, field, message)) = UNSUPPORTED.into_iter().find(|(name, ..)| *name == type_) {
            problems.push(filter.at(field).problem(message));
            return None;
        }
        let Some((type_, field)) = SUPPORTED.into_iter().find(|(name, _)| *name == type_) else {
            problems.push(
                filter
                    .at("type")
                    .problem(format!("{} is not supported; remove the filter", Name(type_))),
            );
            return None;
        };
        filter.only(&["type", field], problems);
        if seen.contains(&type_) {
            problems.push(
                filter
                    .at("type")
                    .problem(format!("{type_} may stand once in a rule; merge the two filters")),
            );
            return None;
        }
        seen.push(type_);
        if filter.get(field).is_none() {
            problems.push(filter.at(field).problem(format!("must be set for {type_}")));
        }
        match type_ {
            "RequestHeaderModifier" => {
                filters.request_headers = filter
                    .with(field, problems, |edit, problems| headers(edit, true, problems))
                    .unwrap_or_default();
            }
            "ResponseHeaderModifier" => {
                filters.response_headers = filter
                    .with(field, problems, |edit, problems| headers(edit, false, problems))
                    .unwrap_or_default();
            }
            "RequestRedirect" => filters.redirect = filter.with(field, problems, redirect).flatten(),
            _ => filters.rewrite = filter.with(field, problems, rewrite).flatten(),
        }
        None
    });
    if seen.contains(&"RequestRedirect") && seen.contains(&"URLRewrite") {
        problems.push(
            rule.at("filters")
                .problem("RequestRedirect and URLRewrite exclude each other; keep one of them"),
        );
    }
    filters
}

/// A header modifier. Names become canonical; the first of two equal names counts, and `set` beats `remove`.
fn headers(node: &Node<'_, '_>, request: bool, problems: &mut Vec<Problem>) -> HeaderEdit {
    node.only(&["set", "add", "remove"], problems);
    if !node.list("add", problems).is_empty() {
        problems.push(
            node.at("add").problem(
                "adding headers is not supported, because Tyk holds one value for each name; use set",
            ),
        );
    }
    let mut edit = HeaderEdit::default();
    node.each("set", problems, |header, problems| -> Option<()> {
        header.only(&["name", "value"], problems);
        let written = header.required("name", problems);
        let name = written
            .and_then(|name| header_name(name, request, problems, |why| header.at("name").problem(why)));
        let value = match header.get("value") {
            None => {
                problems.push(header.at("value").problem("must be set"));
                None
            }
            Some(_) => header.text("value", problems),
        };
        let value = value?;
        if let Some(why) = text::unsafe_text(value) {
            problems.push(header.at("value").problem(why));
            return None;
        }
        edit.set.entry(name?).or_insert_with(|| value.to_owned());
        None
    });
    let place = node.at("remove");
    for (index, written) in node.texts("remove", problems) {
        if let Some(name) = header_name(written, request, problems, |why| place.item(index).problem(why))
            && !edit.set.contains_key(&name)
        {
            edit.remove.insert(name);
        }
    }
    edit
}

fn header_name(
    written: &str,
    request: bool,
    problems: &mut Vec<Problem>,
    problem: impl Fn(String) -> Problem,
) -> Option<String> {
    if let Some(why) = text::unsafe_text(written) {
        problems.push(problem(why));
        return None;
    }
    let Some(name) = text::header_name(written) else {
        problems.push(problem("is no name of a header".to_owned()));
        return None;
    };
    if request && name == "Host" {
        problems.push(problem(
            "Host cannot be changed, because Tyk ignores it; the Host of the request is forwarded".to_owned(),
        ));
        return None;
    }
    Some(name)
}

fn rewrite(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<PathRewrite> {
    node.only(&["hostname", "path"], problems);
    if node.get("hostname").is_some() {
        problems.push(node.at("hostname").problem(
            "rewriting the hostname is not supported; remove the field, the Host of the request is forwarded",
        ));
    }
    node.with("path", problems, |path, problems| {
        path.only(&["type", "replaceFullPath", "replacePrefixMatch"], problems);
        match path.required("type", problems)? {
            "ReplaceFullPath" => {
                misplaced(path, "replacePrefixMatch", "ReplaceFullPath", problems);
                let value = replacement(path, "replaceFullPath", problems)?;
                if text::has_group(value) {
                    problems.push(path.at("replaceFullPath").problem(
                        "must not hold $ followed by a digit, because Tyk reads it as a captured group",
                    ));
                    return None;
                }
                Some(PathRewrite::Full(value.to_owned()))
            }
            "ReplacePrefixMatch" => {
                misplaced(path, "replaceFullPath", "ReplacePrefixMatch", problems);
                // Empty means the root, as `/` does.
                if path.get("replacePrefixMatch").and_then(|value| value.as_str()) == Some("") {
                    return Some(PathRewrite::Prefix("/".to_owned()));
                }
                let value = replacement(path, "replacePrefixMatch", problems)?;
                if value.to_ascii_lowercase().contains("%2f") {
                    problems.push(
                        path.at("replacePrefixMatch")
                            .problem("must not hold %2F, which Tyk decodes; use ReplaceFullPath"),
                    );
                    return None;
                }
                Some(PathRewrite::Prefix(text::trimmed(value)))
            }
            other => {
                problems.push(path.at("type").problem(format!(
                    "{} is not supported; use ReplacePrefixMatch or ReplaceFullPath",
                    Name(other)
                )));
                None
            }
        }
    })
    .flatten()
}

/// A path that replaces another.
fn replacement<'v>(node: &Node<'_, 'v>, name: &str, problems: &mut Vec<Problem>) -> Option<&'v str> {
    let value = node.required(name, problems)?;
    if let Some(why) = text::path(value, PathUse::Url) {
        problems.push(node.at(name).problem(why));
        return None;
    }
    Some(value)
}

fn misplaced(node: &Node<'_, '_>, name: &str, type_: &str, problems: &mut Vec<Problem>) {
    if node.get(name).is_some() {
        problems.push(node.at(name).problem(format!("must not be set for {type_}")));
    }
}

fn redirect(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<Redirect> {
    let before = problems.len();
    node.only(&["scheme", "hostname", "path", "port", "statusCode"], problems);
    let scheme = node.text("scheme", problems);
    if let Some(other) = scheme.filter(|scheme| !["http", "https"].contains(scheme)) {
        problems.push(
            node.at("scheme")
                .problem(format!("{} is not supported; use http or https", Name(other))),
        );
    }
    let hostname = match node.get("hostname") {
        None => {
            problems.push(
                node.at("hostname")
                    .problem("must be set: a redirect must be the same for every request"),
            );
            None
        }
        Some(_) => node.text("hostname", problems),
    };
    let hostname = hostname.map(|name| text::hostname(name, false));
    if let Some(Err(why)) = &hostname {
        problems.push(node.at("hostname").problem(*why));
    }
    let path = match node.get("path") {
        None => {
            problems.push(node.at("path").problem(
                "must be set with type ReplaceFullPath: a redirect must be the same for every request",
            ));
            None
        }
        Some(_) => node.with("path", problems, redirect_path).flatten(),
    };
    let port = node.port("port", problems);
    let status = match node.get("statusCode") {
        None => 302,
        Some(value) => match value.as_u64().and_then(|code| u32::try_from(code).ok()) {
            Some(code) if REDIRECT_CODES.contains(&code) => code,
            _ => {
                problems.push(
                    node.at("statusCode")
                        .problem("must be one of 301, 302, 303, 307 and 308"),
                );
                0
            }
        },
    };
    if problems.len() > before {
        return None;
    }
    Some(Redirect {
        scheme: scheme.map(str::to_owned),
        hostname: hostname?.ok()?,
        port,
        path: path?,
        status: u16::try_from(status).ok()?,
    })
}

fn redirect_path(node: &Node<'_, '_>, problems: &mut Vec<Problem>) -> Option<String> {
    node.only(&["type", "replaceFullPath", "replacePrefixMatch"], problems);
    match node.required("type", problems)? {
        "ReplaceFullPath" => {
            misplaced(node, "replacePrefixMatch", "ReplaceFullPath", problems);
            replacement(node, "replaceFullPath", problems).map(str::to_owned)
        }
        other => {
            problems.push(node.at("type").problem(format!(
                "{} is not supported in a redirect, which must be the same for every request; use ReplaceFullPath",
                Name(other)
            )));
            None
        }
    }
}
