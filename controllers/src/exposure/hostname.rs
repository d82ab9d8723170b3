//! Which bucket Garage serves for a host, and which hostnames of an exposure therefore need their Host rewritten.
//!
//! [`resolve`] models what Garage's web API was seen to do; [`resolution_table`] is that observation as data, so that
//! the same rows can be asked of a real Garage. Nothing here knows Kubernetes objects.

use std::{collections::BTreeSet, fmt, net::IpAddr};

/// Longest hostname.
pub const MAX_HOSTNAME: usize = 253;

/// Most hostnames of one exposure: the limit of an HTTPRoute.
pub const MAX_HOSTNAMES: usize = 16;

/// Global alias that Garage looks up for a request with this `Host`, or `None` when it answers 400.
///
/// `root_domain` is the text of Garage's configuration, not a checked [`RootDomain`]: Garage takes anything.
pub fn resolve(host: &str, root_domain: &str) -> Option<String> {
    let host = if host.starts_with('[') {
        // An IPv6 literal keeps its brackets; without the closing one it is no host at all.
        host.get(..=host.find(']')?)?
    } else {
        host.split(':').next()?
    };
    let host = host.to_ascii_lowercase();
    // The root domain is compared as written: one with upper case matches nothing.
    let root = root_domain.trim_start_matches('.');
    match host.strip_suffix(root).and_then(|rest| rest.strip_suffix('.')) {
        Some(alias) if !alias.is_empty() => Some(alias.to_owned()),
        _ => Some(host),
    }
}

/// What is wrong with a hostname.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostnameProblem {
    /// No text.
    Empty,
    /// More than 253 characters.
    TooLong,
    /// Contains `*`.
    Wildcard,
    /// An IPv4 or IPv6 address.
    IpAddress,
    /// Upper-case letters.
    UpperCase,
    /// Ends with a dot.
    TrailingDot,
    /// Some label is empty, longer than 63 characters, starts or ends with a dash, or has other characters.
    InvalidLabel,
}

impl fmt::Display for HostnameProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::TooLong => "is longer than 253 characters",
            Self::Wildcard => "has a wildcard; list each hostname",
            Self::IpAddress => "is an IP address; use a DNS name",
            Self::UpperCase => "has upper-case letters; write it in lower case",
            Self::TrailingDot => "ends with a dot; leave it out",
            Self::InvalidLabel => {
                "is not a DNS name: labels have 1 to 63 of a-z, 0-9 and -, and no - at either end"
            }
        })
    }
}

/// Checks that this is a lower-case DNS name that both Ingress and HTTPRoute take.
pub fn check_hostname(host: &str) -> Result<(), HostnameProblem> {
    let label_ok = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.is_empty() {
        Err(HostnameProblem::Empty)
    } else if host.len() > MAX_HOSTNAME {
        Err(HostnameProblem::TooLong)
    } else if host.contains('*') {
        Err(HostnameProblem::Wildcard)
    } else if host.parse::<IpAddr>().is_ok() {
        Err(HostnameProblem::IpAddress)
    } else if host.bytes().any(|b| b.is_ascii_uppercase()) {
        Err(HostnameProblem::UpperCase)
    } else if host.ends_with('.') {
        Err(HostnameProblem::TrailingDot)
    } else if !host.split('.').all(label_ok) {
        Err(HostnameProblem::InvalidLabel)
    } else {
        Ok(())
    }
}

/// What is wrong with a list of hostnames, without looking at a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListProblem {
    /// More than 16.
    TooMany(usize),
    /// One of them is no hostname.
    Bad {
        /// Position in the list.
        index: usize,
        /// What is wrong with it.
        problem: HostnameProblem,
    },
    /// One of them was listed before.
    Duplicate {
        /// Position of the second one.
        index: usize,
    },
}

/// Checks a list of hostnames: how many, each one, no duplicates after lower-casing. An empty list is fine.
pub fn check_list(hostnames: &[String]) -> Result<(), ListProblem> {
    if hostnames.len() > MAX_HOSTNAMES {
        return Err(ListProblem::TooMany(hostnames.len()));
    }
    let mut seen = BTreeSet::new();
    for (index, host) in hostnames.iter().enumerate() {
        if !seen.insert(host.to_ascii_lowercase()) {
            return Err(ListProblem::Duplicate { index });
        }
        check_hostname(host).map_err(|problem| ListProblem::Bad { index, problem })?;
    }
    Ok(())
}

/// A root domain under which Garage can be reached: without leading dots, a valid lower-case DNS name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootDomain(String);

impl RootDomain {
    /// Reads `webApi.rootDomain`. Leading dots mean nothing to Garage and are dropped.
    ///
    /// Refuses what no canonical host can be made from: empty, `.`, upper case (Garage would never match it), a trailing
    /// dot, invalid labels.
    pub fn parse(text: &str) -> Result<Self, HostnameProblem> {
        let bare = text.trim_start_matches('.');
        check_hostname(bare)?;
        Ok(Self(bare.to_owned()))
    }

    /// The domain without leading dots.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host under which Garage always serves this alias.
    ///
    /// An alias may hold what no DNS name may (`a..b`), and both together may be too long.
    pub fn canonical_host(&self, alias: &str) -> Result<String, HostnameProblem> {
        let host = format!("{alias}.{}", self.0);
        check_hostname(&host)?;
        Ok(host)
    }
}

/// One hostname of an exposure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hostname {
    /// The name, lower case.
    pub name: String,
    /// Garage serves this bucket for it as it is. Otherwise the Host must be rewritten.
    pub as_is: bool,
}

/// The hostnames of an exposure, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hostnames {
    /// In the order of the list.
    pub entries: Vec<Hostname>,
    /// `<alias>.<root domain>`, which Garage resolves to this bucket. `None` only if the root domain is not known, and
    /// then every hostname resolves as it is.
    pub canonical: Option<String>,
}

impl Hostnames {
    /// The first hostname that Garage does not resolve to this bucket by itself, with its position.
    pub fn first_to_rewrite(&self) -> Option<(usize, &str)> {
        self.entries
            .iter()
            .enumerate()
            .find(|(_, h)| !h.as_is)
            .map(|(i, h)| (i, h.name.as_str()))
    }
}

/// Why no hostnames could be determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostnamesProblem {
    /// The list itself.
    List(ListProblem),
    /// Alias and root domain make no valid host.
    Canonical {
        /// The host that they would make.
        host: String,
        /// What is wrong with it.
        problem: HostnameProblem,
    },
    /// The root domain is not known, and it is needed: for the default hostname, or because a listed one may be
    /// resolved differently depending on it.
    RootDomainNeeded,
}

/// Hostnames for an exposure: the listed ones, or the canonical host when none is listed.
///
/// `root` is `None` when nobody knows the root domain (a Garage that runs elsewhere and does not say). Then a hostname
/// is certain to resolve as it is only if it is the alias and a single label: no root domain can be a part of it.
pub fn for_exposure(
    listed: &[String],
    alias: &str,
    root: Option<&RootDomain>,
) -> Result<Hostnames, HostnamesProblem> {
    check_list(listed).map_err(HostnamesProblem::List)?;
    let Some(root) = root else {
        let certain = |host: &String| host == alias && !host.contains('.');
        if listed.is_empty() || !listed.iter().all(certain) {
            return Err(HostnamesProblem::RootDomainNeeded);
        }
        let entries = listed
            .iter()
            .map(|name| Hostname {
                name: name.clone(),
                as_is: true,
            })
            .collect();
        return Ok(Hostnames {
            entries,
            canonical: None,
        });
    };
    let canonical = root
        .canonical_host(alias)
        .map_err(|problem| HostnamesProblem::Canonical {
            host: format!("{alias}.{}", root.as_str()),
            problem,
        })?;
    let classify = |name: &String| Hostname {
        name: name.clone(),
        as_is: resolve(name, root.as_str()).as_deref() == Some(alias),
    };
    let entries = if listed.is_empty() {
        vec![classify(&canonical)]
    } else {
        listed.iter().map(classify).collect()
    };
    Ok(Hostnames {
        entries,
        canonical: Some(canonical),
    })
}

/// One observation of Garage: a request for `/` with this Host, sent to the web API of a Garage with this root domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolutionRow {
    /// `root_domain` of Garage's `[s3_web]`.
    pub root_domain: &'static str,
    /// Global aliases of the one bucket, website mode on, that has an index document.
    pub aliases: &'static [&'static str],
    /// `Host` header of the request.
    pub host: &'static str,
    /// Status of the answer.
    pub status: u16,
}

/// Every observation that [`resolve`] rests on. The same rows can be asked of a real Garage.
pub fn resolution_table() -> Vec<ResolutionRow> {
    const SITE: &[&str] = &["site"];
    const UNDER_ROOT: &[&str] = &["site", "www.example.com"];
    const ELSEWHERE: &[&str] = &["site", "www.other.net"];
    [
        (".example.com", SITE, "site.example.com", 200),
        (".example.com", SITE, "SITE.EXAMPLE.COM", 200),
        (".example.com", SITE, "site.example.com:8080", 200),
        (".example.com", SITE, "site", 200),
        (".example.com", SITE, "site:80", 200),
        (".example.com", SITE, "SITE", 200),
        (".example.com", SITE, "site.example.com.", 404),
        (".example.com", SITE, "other.example.com", 404),
        (".example.com", SITE, "example.com", 404),
        (".example.com", SITE, "xsite.example.com", 404),
        (".example.com", SITE, "siteexample.com", 404),
        (".example.com", SITE, "[::1]:3902", 404),
        (".example.com", SITE, "[::1", 400),
        (".example.com", UNDER_ROOT, "www.example.com", 404),
        (".example.com", UNDER_ROOT, "www.example.com.example.com", 200),
        (".example.com", ELSEWHERE, "www.other.net", 200),
        ("example.com", SITE, "site.example.com", 200),
        ("..example.com", SITE, "site.example.com", 200),
        (".Example.com", SITE, "site.example.com", 404),
        (".Example.com", SITE, "site", 200),
        ("", SITE, "site.anything", 404),
        ("", SITE, "site", 200),
        ("", SITE, "site.", 200),
        (".", SITE, "site.anything", 404),
        (".", SITE, "site", 200),
        (".example.com.", SITE, "site.example.com", 404),
        (".example.com.", SITE, "site.example.com.", 200),
        (".garage.ns.svc", SITE, "site.garage.ns.svc", 200),
        (".garage.ns.svc", SITE, "site.garage.ns.svc.cluster.local", 404),
    ]
    .map(|(root_domain, aliases, host, status)| ResolutionRow {
        root_domain,
        aliases,
        host,
        status,
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garage::bucket::is_reservation;
    use proptest::prelude::*;

    #[test]
    fn every_observed_row_is_what_the_model_says() {
        for row in resolution_table() {
            let status = match resolve(row.host, row.root_domain) {
                None => 400,
                Some(alias) if row.aliases.contains(&alias.as_str()) => 200,
                Some(_) => 404,
            };
            assert_eq!(status, row.status, "{row:?}");
        }
    }

    #[test]
    fn an_alias_under_the_root_domain_goes_to_the_bucket_with_the_shorter_alias() {
        assert_eq!(resolve("www.example.com", ".example.com").as_deref(), Some("www"));
    }

    #[test]
    fn hostnames_are_checked_one_by_one() {
        use HostnameProblem as P;
        let label = "a".repeat(63);
        for (host, expected) in [
            ("site", Ok(())),
            ("www.example.com", Ok(())),
            ("1.example.com", Ok(())),
            ("xn--bcher-kva.example", Ok(())),
            (&label, Ok(())),
            ("", Err(P::Empty)),
            (&[label.as_str(); 4].join("."), Err(P::TooLong)),
            ("*.example.com", Err(P::Wildcard)),
            ("192.0.2.1", Err(P::IpAddress)),
            ("2001:db8::1", Err(P::IpAddress)),
            ("Www.example.com", Err(P::UpperCase)),
            ("www.example.com.", Err(P::TrailingDot)),
            ("www..example.com", Err(P::InvalidLabel)),
            (".example.com", Err(P::InvalidLabel)),
            ("-a.example.com", Err(P::InvalidLabel)),
            ("a-.example.com", Err(P::InvalidLabel)),
            ("a_b.example.com", Err(P::InvalidLabel)),
            ("www.example.com:80", Err(P::InvalidLabel)),
            ("bücher.example", Err(P::InvalidLabel)),
            ("a\n", Err(P::InvalidLabel)),
            (&format!("{label}a"), Err(P::InvalidLabel)),
        ] {
            assert_eq!(check_hostname(host), expected, "{host:?}");
        }
    }

    #[test]
    fn root_domains_that_no_host_can_be_made_from_are_refused() {
        use HostnameProblem as P;
        for (text, expected) in [
            (".example.com", Ok("example.com")),
            ("example.com", Ok("example.com")),
            ("..example.com", Ok("example.com")),
            (".garage.ns.svc", Ok("garage.ns.svc")),
            ("", Err(P::Empty)),
            (".", Err(P::Empty)),
            (".Example.com", Err(P::UpperCase)),
            (".example.com.", Err(P::TrailingDot)),
            (".exam_ple.com", Err(P::InvalidLabel)),
            (".example..com", Err(P::InvalidLabel)),
            ("::1", Err(P::IpAddress)),
        ] {
            let parsed = RootDomain::parse(text);
            assert_eq!(
                parsed.as_ref().map(RootDomain::as_str).map_err(|p| *p),
                expected,
                "{text:?}"
            );
        }
    }

    fn hosts(listed: &[&str], alias: &str, root: Option<&str>) -> Result<Hostnames, HostnamesProblem> {
        let listed: Vec<String> = listed.iter().map(|s| (*s).to_owned()).collect();
        for_exposure(
            &listed,
            alias,
            root.map(|r| RootDomain::parse(r).unwrap()).as_ref(),
        )
    }

    fn classes(hostnames: &Hostnames) -> Vec<(&str, bool)> {
        hostnames
            .entries
            .iter()
            .map(|h| (h.name.as_str(), h.as_is))
            .collect()
    }

    #[test]
    fn without_a_list_the_canonical_host_is_used() {
        let found = hosts(&[], "site", Some(".example.com")).unwrap();
        assert_eq!(classes(&found), [("site.example.com", true)]);
        assert_eq!(found.canonical.as_deref(), Some("site.example.com"));
        assert_eq!(found.first_to_rewrite(), None);
    }

    #[test]
    fn canonical_and_bare_alias_go_as_they_are_and_the_rest_is_rewritten() {
        let found = hosts(
            &["site.example.com", "site", "www.other.net"],
            "site",
            Some("example.com"),
        )
        .unwrap();
        assert_eq!(
            classes(&found),
            [
                ("site.example.com", true),
                ("site", true),
                ("www.other.net", false)
            ]
        );
        assert_eq!(found.first_to_rewrite(), Some((2, "www.other.net")));
    }

    #[test]
    fn a_bare_alias_under_the_root_domain_is_rewritten() {
        let found = hosts(&["www.example.com"], "www.example.com", Some(".example.com")).unwrap();
        assert_eq!(classes(&found), [("www.example.com", false)]);
        assert_eq!(found.canonical.as_deref(), Some("www.example.com.example.com"));
    }

    #[test]
    fn alias_and_root_domain_that_make_no_host_are_refused() {
        let problem = hosts(&["ok.example.com"], "a..b", Some(".example.com")).unwrap_err();
        let host = "a..b.example.com".to_owned();
        assert_eq!(
            problem,
            HostnamesProblem::Canonical {
                host,
                problem: HostnameProblem::InvalidLabel
            }
        );
        let long = ["a".repeat(60), "a".repeat(60), "a".repeat(60), "a".repeat(60)].join(".");
        assert!(matches!(
            hosts(&[], "sixteen-letters1", Some(&long)),
            Err(HostnamesProblem::Canonical {
                problem: HostnameProblem::TooLong,
                ..
            })
        ));
    }

    #[test]
    fn a_list_is_checked_as_a_whole() {
        use ListProblem as L;
        let problem = |listed: &[&str]| match hosts(listed, "site", Some("example.com")) {
            Err(HostnamesProblem::List(problem)) => problem,
            other => panic!("{other:?}"),
        };
        assert_eq!(problem(&["a.net", "b.net", "a.net"]), L::Duplicate { index: 2 });
        assert_eq!(problem(&["a.net", "A.net"]), L::Duplicate { index: 1 });
        assert_eq!(
            problem(&["a.net", "B.net"]),
            L::Bad {
                index: 1,
                problem: HostnameProblem::UpperCase
            }
        );
        let many: Vec<String> = (0..17).map(|i| format!("h{i}.net")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(problem(&many), L::TooMany(17));
    }

    #[test]
    fn without_a_root_domain_only_a_single_label_alias_is_certain() {
        assert_eq!(
            classes(&hosts(&["site"], "site", None).unwrap()),
            [("site", true)]
        );
        for (listed, alias) in [
            (&[][..], "site"),
            (&["www.net"], "site"),
            (&["site", "www.net"], "site"),
            (&["www.net"], "www.net"),
        ] {
            assert_eq!(
                hosts(listed, alias, None),
                Err(HostnamesProblem::RootDomainNeeded),
                "{listed:?}"
            );
        }
    }

    #[test]
    fn reservation_aliases_are_known() {
        assert!(is_reservation("garage-rsv-0123") && is_reservation("cosi-rsv-x"));
        assert!(!is_reservation("garage") && !is_reservation("my-garage-rsv-1"));
    }

    proptest! {
        /// The canonical host is what Garage resolves to the alias, with and without dots, port and upper case.
        #[test]
        fn canonical_host_resolves_to_its_alias(
            alias in "[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?",
            root in "\\.{0,2}[a-z]{1,5}(\\.[a-z]{1,5}){0,2}",
            port in prop::option::of(1u16..),
        ) {
            let parsed = RootDomain::parse(&root).unwrap();
            if let Ok(host) = parsed.canonical_host(&alias) {
                let sent = match port {
                    Some(port) => format!("{}:{port}", host.to_uppercase()),
                    None => host,
                };
                prop_assert_eq!(resolve(&sent, &root), Some(alias));
            }
        }

        /// Whatever the host and root domain are, the model answers and never invents an alias.
        #[test]
        fn the_alias_is_a_part_of_the_host(host in "\\PC{0,20}", root in "[a-zA-Z.]{0,8}") {
            if let Some(alias) = resolve(&host, &root) {
                prop_assert!(host.to_ascii_lowercase().starts_with(&alias), "{:?} from {:?}", alias, host);
            }
        }

        /// The admission rule and this check agree on the shape: whatever passes is what DNS allows.
        #[test]
        fn what_passes_is_lower_case_dns(host in "[a-zA-Z0-9.*:_-]{0,70}") {
            if check_hostname(&host).is_ok() {
                prop_assert!(host.split('.').all(|l| !l.is_empty() && l.len() <= 63));
                prop_assert_eq!(host.to_ascii_lowercase(), host);
            }
        }
    }
}
