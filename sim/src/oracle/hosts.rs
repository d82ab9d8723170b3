//! Names of hosts: which one Garage knows a bucket by, which are valid, and what a route and a listener have in common.

use std::net::IpAddr;

/// The canonical host of a bucket: alias and root domain without its leading dots.
pub(crate) fn canonical(alias: &str, root: &str) -> String {
    format!("{alias}.{}", root.trim_start_matches('.'))
}

/// The alias that Garage makes of a host: port off, lower case, label-wise suffix match of the root domain, the
/// remainder or else the whole host. The root domain is taken as it is, but for its leading dots.
pub(crate) fn garage_alias(host: &str, root: &str) -> String {
    let host = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let root = root.trim_start_matches('.');
    if root.is_empty() {
        return host;
    }
    let labels: Vec<&str> = host.split('.').collect();
    let suffix: Vec<&str> = root.split('.').collect();
    match labels.len().checked_sub(suffix.len()) {
        Some(rest) if rest > 0 && labels[rest..] == suffix[..] => labels[..rest].join("."),
        _ => host,
    }
}

/// Whether a name is a lower-case DNS name of at most 253 characters, and no IP address.
pub(crate) fn is_dns_name(name: &str) -> bool {
    name.len() <= 253 && name.parse::<IpAddr>().is_err() && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !label.is_empty()
        && label.len() <= 63
        && label.chars().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Whether a root domain is one that Garage can match: not empty, lower case, no trailing dot, valid labels.
pub(crate) fn is_root_domain(root: &str) -> bool {
    is_dns_name(root.trim_start_matches('.'))
}

/// Whether a name is a host of Gateway API: a DNS name, or a wildcard for its first label.
pub(crate) fn is_gateway_host(name: &str) -> bool {
    is_dns_name(name.strip_prefix("*.").unwrap_or(name))
}

/// What two hosts of Gateway API have in common: the more specific one.
pub(crate) fn in_common(one: &str, other: &str) -> Option<String> {
    let below = |wildcard: &str, host: &str| {
        wildcard
            .strip_prefix('*')
            .is_some_and(|suffix| host.ends_with(suffix) && host.len() > suffix.len())
    };
    if one == other || below(other, one) {
        Some(one.to_owned())
    } else if below(one, other) {
        Some(other.to_owned())
    } else {
        None
    }
}

/// The hosts that a listener yields for a route. `None` is any host. An empty list: nothing in common.
pub(crate) fn effective(route: &[String], listener: Option<&str>) -> Vec<Option<String>> {
    let Some(listener) = listener else {
        return match route {
            [] => vec![None],
            hosts => hosts.iter().cloned().map(Some).collect(),
        };
    };
    match route {
        [] => vec![Some(listener.to_owned())],
        hosts => {
            let common = hosts.iter().filter_map(|host| in_common(host, listener));
            common.map(Some).collect()
        }
    }
}

/// The host of a document in Tyk: `{h:.+}.example.com` is a wildcard.
pub(crate) fn of_custom_domain(name: &str) -> String {
    match name.strip_prefix("{h:.+}") {
        Some(rest) => format!("*{rest}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garage_resolves_hosts_as_measured() {
        for (host, root, alias) in [
            ("site.example.com", ".example.com", "site"),
            ("SITE.example.com:8080", "example.com", "site"),
            ("site", ".example.com", "site"),
            ("example.com", ".example.com", "example.com"),
            ("siteexample.com", ".example.com", "siteexample.com"),
            ("www.example.com", ".example.com", "www"),
            ("www.example.com.example.com", ".example.com", "www.example.com"),
            ("www.other.net", ".example.com", "www.other.net"),
            ("site.example.com", ".Example.com", "site.example.com"),
            (
                "site.garage.ns.svc.cluster.local",
                ".garage.ns.svc",
                "site.garage.ns.svc.cluster.local",
            ),
        ] {
            assert_eq!(garage_alias(host, root), alias, "{host} under {root}");
        }
        assert_eq!(canonical("docs", ".web.example.com"), "docs.web.example.com");
    }

    #[test]
    fn names_and_root_domains_are_checked() {
        assert!(is_dns_name("a.b-c.d0") && is_dns_name("a"));
        for bad in [
            "",
            ".",
            "a.",
            "A.b",
            "-a",
            "a..b",
            "10.0.0.1",
            "*.a",
            "a_b",
            &"a".repeat(64),
        ] {
            assert!(!is_dns_name(bad), "{bad}");
        }
        assert!(is_root_domain(".a.b") && is_root_domain("..a.b"));
        assert!(!is_root_domain(".") && !is_root_domain("a.b.") && !is_root_domain(""));
    }

    #[test]
    fn hosts_in_common_are_the_more_specific() {
        assert_eq!(in_common("a.b", "a.b").as_deref(), Some("a.b"));
        assert_eq!(in_common("*.b", "x.y.b").as_deref(), Some("x.y.b"));
        assert_eq!(in_common("*.y.b", "*.b").as_deref(), Some("*.y.b"));
        assert_eq!(in_common("*.b", "b"), None);
        assert_eq!(in_common("a.b", "c.b"), None);
        assert_eq!(effective(&[], None), [None]);
        assert_eq!(effective(&[], Some("a.b")), [Some("a.b".to_owned())]);
        assert!(effective(&["c.d".to_owned()], Some("a.b")).is_empty());
        assert_eq!(of_custom_domain("{h:.+}.a.b"), "*.a.b");
    }
}
