//! What an installation lets its tenants ask for: hostnames, global aliases that are hostnames, annotations and labels.
//! Off where a list is empty. Only the rules live here; `resolve` and the bucket controller
//! name the field of the bucket that breaks one.

use super::{
    ExposureKind,
    hostname::{HostnameProblem, check_hostname},
};

/// Limits of `--allowed-hostname-suffixes` and its sisters. An empty list limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    /// DNS names; each allows itself and every name below it.
    pub hostname_suffixes: Vec<String>,
    /// What the key of an annotation of an Ingress may begin with.
    pub ingress_annotation_prefixes: Vec<String>,
    /// What the key of an annotation of an HTTPRoute may begin with.
    pub httproute_annotation_prefixes: Vec<String>,
    /// What the key of a label of either may begin with.
    pub label_prefixes: Vec<String>,
}

/// No limits.
pub static UNLIMITED: Guards = Guards {
    hostname_suffixes: Vec::new(),
    ingress_annotation_prefixes: Vec::new(),
    httproute_annotation_prefixes: Vec::new(),
    label_prefixes: Vec::new(),
};

impl Guards {
    /// Whether this hostname may be exposed. By whole labels: `example.com` allows `www.example.com` and never
    /// `badexample.com`.
    pub fn allows_hostname(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let below = |suffix: &String| match host.strip_suffix(suffix.as_str()) {
            Some(rest) => rest.is_empty() || rest.ends_with('.'),
            None => false,
        };
        self.hostname_suffixes.is_empty() || self.hostname_suffixes.iter().any(below)
    }

    /// Whether a bucket may have this global alias. One with a dot is a hostname for Garage's web API, whatever the root
    /// domain; one without is a name below the root domain, which the installation chose.
    pub fn allows_alias(&self, alias: &str) -> bool {
        !alias.contains('.') || self.allows_hostname(alias)
    }

    /// Whether an object may carry this label.
    pub fn allows_label(&self, key: &str) -> bool {
        let prefixes = &self.label_prefixes;
        prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// What the key of an annotation may begin with; empty for anything.
    pub fn annotation_prefixes(&self, kind: ExposureKind) -> &[String] {
        match kind {
            ExposureKind::Ingress => &self.ingress_annotation_prefixes,
            ExposureKind::HttpRoute => &self.httproute_annotation_prefixes,
        }
    }

    /// Whether an object of this kind may carry this annotation.
    pub fn allows_annotation(&self, kind: ExposureKind, key: &str) -> bool {
        let prefixes = self.annotation_prefixes(kind);
        prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(prefix))
    }
}

/// The entries of a list flag, without blanks around them and without empty ones.
fn entries(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter()
        .map(|entry| entry.trim())
        .filter(|entry| !entry.is_empty())
}

/// Reads `--allowed-hostname-suffixes`.
///
/// # Errors
/// The first entry that is no lower-case DNS name, with what to do about it.
pub fn hostname_suffixes(list: &[String]) -> Result<Vec<String>, String> {
    let read = |entry: &str| match check_hostname(entry) {
        Ok(()) => Ok(entry.to_owned()),
        Err(HostnameProblem::InvalidLabel | HostnameProblem::Wildcard)
            if entry.starts_with('.') || entry.starts_with("*.") =>
        {
            let bare = entry.trim_start_matches(['*', '.']);
            Err(format!(
                "{entry:?}: write {bare}, which allows every name below it too"
            ))
        }
        Err(problem) => Err(format!("{entry:?} {problem}")),
    };
    entries(list).map(read).collect()
}

/// Reads `--allowed-ingress-annotation-prefixes` or one of its sisters.
///
/// # Errors
/// The first entry that no key of an annotation or label can begin with.
pub fn key_prefixes(list: &[String]) -> Result<Vec<String>, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let read = |entry: &str| {
        if entry.starts_with(|c: char| c.is_ascii_alphanumeric())
            && entry.chars().all(fits)
            && entry.matches('/').count() <= 1
        {
            Ok(entry.to_owned())
        } else {
            Err(format!(
                "{entry:?}: no key of an annotation or label begins so; write a prefix such as cert-manager.io/"
            ))
        }
    };
    entries(list).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn guards(suffixes: &[&str]) -> Guards {
        Guards {
            hostname_suffixes: hostname_suffixes(&list(suffixes)).unwrap(),
            ..Guards::default()
        }
    }

    #[test]
    fn a_suffix_allows_itself_and_what_is_below_it_by_whole_labels() {
        let guards = guards(&["example.com", "sites.internal"]);
        for (host, allowed) in [
            ("example.com", true),
            ("www.example.com", true),
            ("a.b.example.com", true),
            ("WWW.Example.COM", true),
            ("blog.sites.internal", true),
            ("badexample.com", false),
            ("www.badexample.com", false),
            ("example.com.evil.net", false),
            ("com", false),
            ("internal", false),
            ("", false),
        ] {
            assert_eq!(guards.allows_hostname(host), allowed, "{host}");
        }
    }

    #[test]
    fn nothing_is_limited_where_no_list_is_given() {
        let none = Guards::default();
        assert_eq!(none, UNLIMITED);
        assert!(none.allows_hostname("anything.at.all"));
        for kind in [ExposureKind::Ingress, ExposureKind::HttpRoute] {
            assert!(none.allows_annotation(kind, "any/key"));
        }
    }

    #[test]
    fn an_alias_with_a_dot_is_a_hostname_and_a_label_has_its_own_prefixes() {
        let mut guards = guards(&["example.com"]);
        guards.label_prefixes = key_prefixes(&list(&["team/"])).unwrap();
        for (alias, allowed) in [
            ("docs", true),
            ("www.example.com", true),
            ("www.bank.test", false),
        ] {
            assert_eq!(guards.allows_alias(alias), allowed, "{alias}");
        }
        assert!(guards.allows_label("team/name") && !guards.allows_label("app.kubernetes.io/part-of"));
        assert!(UNLIMITED.allows_alias("www.bank.test") && UNLIMITED.allows_label("any/key"));
    }

    #[test]
    fn each_kind_has_its_own_prefixes() {
        let guards = Guards {
            ingress_annotation_prefixes: key_prefixes(&list(&["cert-manager.io/", "team-"])).unwrap(),
            ..Guards::default()
        };
        let ingress = |key| guards.allows_annotation(ExposureKind::Ingress, key);
        assert!(ingress("cert-manager.io/cluster-issuer"));
        assert!(ingress("team-name"));
        assert!(!ingress("nginx.ingress.kubernetes.io/server-snippet"));
        assert!(!ingress("cert-manager.io.evil/x"));
        assert!(guards.allows_annotation(
            ExposureKind::HttpRoute,
            "nginx.ingress.kubernetes.io/server-snippet"
        ));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_way_out() {
        for (entry, said) in [
            (".example.com", "write example.com"),
            ("*.example.com", "write example.com"),
            ("Example.com", "lower case"),
            ("example.com.", "leave it out"),
            ("exa mple.com", "is not a DNS name"),
            ("10.0.0.1", "IP address"),
        ] {
            let error = hostname_suffixes(&list(&["fine.org", entry])).unwrap_err();
            assert!(error.contains(said) && error.contains(entry), "{entry}: {error}");
        }
        for entry in ["*", "/x", "a b", "a/b/c", "a=b"] {
            assert!(key_prefixes(&list(&[entry])).unwrap_err().contains(entry));
        }
        // Blanks around commas and empty entries mean nothing.
        assert_eq!(hostname_suffixes(&list(&[" a.org ", ""])).unwrap(), ["a.org"]);
        assert_eq!(key_prefixes(&list(&["", " a/ "])).unwrap(), ["a/"]);
    }

    proptest! {
        /// A hostname is allowed exactly if its last labels are those of a suffix.
        #[test]
        fn by_labels_as_by_text(
            host in proptest::collection::vec("[ab]{1,2}", 1..5),
            suffix in proptest::collection::vec("[ab]{1,2}", 1..4),
        ) {
            let guards = guards(&[&suffix.join(".")]);
            prop_assert_eq!(guards.allows_hostname(&host.join(".")), host.ends_with(&suffix));
        }
    }
}
