//! What the service account of an installation may do, as the page of rights says (its table is written from the chart).
//! The page is read here a second time, so that a request without a right and a right that the page forgets both show.
//! Knows nothing of who asks.

use std::sync::LazyLock;

use http::Method;

use crate::{net::Asked, world::Flags};

const PAGE: &str = include_str!("../../docs/src/reference/rbac.md");
/// The release's name on the page.
const RELEASE: &str = "routewright-";

/// A switch of the chart that brings rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    Ingress,
    GatewayApi,
    Buckets,
    Tyk,
    Definitions,
    Election,
}

impl Switch {
    /// Those that are features: each brings the rights that every feature needs.
    const FEATURES: [Self; 5] = [
        Self::Ingress,
        Self::GatewayApi,
        Self::Buckets,
        Self::Tyk,
        Self::Definitions,
    ];

    fn of(name: &str) -> Self {
        match name {
            "ingress.enabled" => Self::Ingress,
            "gatewayAPI.enabled" => Self::GatewayApi,
            "garageBuckets.enabled" => Self::Buckets,
            "tyk.enabled" => Self::Tyk,
            "tyk.definitions" => Self::Definitions,
            "leaderElection.enabled" => Self::Election,
            other => panic!("the page of rights names an unknown switch {other}"),
        }
    }

    fn is_on(self, flags: &Flags) -> bool {
        match self {
            Self::Ingress => flags.ingress,
            Self::GatewayApi => flags.gateway_api,
            Self::Buckets => flags.buckets,
            Self::Tyk | Self::Definitions => flags.tyk.is_some(),
            Self::Election => true,
        }
    }
}

/// When a right is given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum When {
    /// One of these is on.
    Any(Vec<Switch>),
    /// Always, unless no other features than these are on.
    Unless(Vec<Switch>),
}

impl When {
    fn read(cell: &str) -> Self {
        let switches = || cell.split('`').skip(1).step_by(2).map(Switch::of).collect();
        match cell.starts_with("always") {
            true => Self::Unless(switches()),
            false => Self::Any(switches()),
        }
    }

    fn holds(&self, flags: &Flags) -> bool {
        match self {
            Self::Any(switches) => switches.iter().any(|one| one.is_on(flags)),
            Self::Unless(without) => {
                let on = Switch::FEATURES.into_iter().filter(|one| one.is_on(flags));
                let (takes, keeps): (Vec<_>, Vec<_>) = on.partition(|one| without.contains(one));
                takes.is_empty() || !keeps.is_empty()
            }
        }
    }
}

/// Where a right is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Everywhere.
    Cluster,
    /// Everywhere, but only in the namespaces that are watched if there is a list of them.
    Watched,
    /// Everywhere, and nowhere with a list of namespaces.
    ClusterOrNowhere,
    /// In the operator's own namespace.
    Own,
}

impl Place {
    /// `None`: not for the operator, but for the Job that cleans up.
    fn read(cell: &str) -> Option<Self> {
        Some(match cell {
            "ClusterRole" | "ClusterRole, and Role in each of `watchNamespaces`" => Self::Cluster,
            "ClusterRole, or Role in each of `watchNamespaces`" => Self::Watched,
            "ClusterRole; not with `watchNamespaces`" => Self::ClusterOrNowhere,
            "Role in the release's namespace" => Self::Own,
            "for the Job on uninstall alone" => return None,
            other => panic!("the page of rights names an unknown place {other}"),
        })
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    when: When,
    group: String,
    /// With the subresource.
    resource: String,
    /// Of this object alone.
    name: Option<String>,
    verbs: Vec<String>,
    place: Place,
}

static TABLE: LazyLock<Vec<Row>> = LazyLock::new(|| read(PAGE));

fn read(page: &str) -> Vec<Row> {
    let (_, table) = page
        .split_once("<!-- rights:begin -->")
        .expect("the page has the table");
    let (table, _) = table
        .split_once("<!-- rights:end -->")
        .expect("the table has an end");
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [when, group, resource, verbs, place] = cells.as_slice() else {
            panic!("a row of the page of rights has five cells: {line}");
        };
        let (resource, name) = match resource.split_once(' ') {
            Some((resource, name)) => (resource, Some(name.trim_matches('`').to_owned())),
            None => (*resource, None),
        };
        Some(Row {
            when: When::read(when),
            group: if *group == "core" { "" } else { *group }.to_owned(),
            resource: resource.to_owned(),
            name,
            verbs: verbs.split(", ").map(str::to_owned).collect(),
            place: Place::read(place)?,
        })
    })
    .collect()
}

/// What an installation may do.
#[derive(Clone, Debug)]
pub struct Rights {
    rows: Vec<Row>,
    release: String,
    own: String,
    watched: Option<Vec<String>>,
}

impl Rights {
    /// Those that the chart gives for these flags to a release in the namespace `own`.
    pub fn of(flags: &Flags, own: &str) -> Self {
        let rows = TABLE.iter().filter(|row| row.when.holds(flags)).cloned();
        Self {
            rows: rows.collect(),
            release: flags.instance.clone(),
            own: own.to_owned(),
            watched: flags.namespaces.clone(),
        }
    }

    /// Whether the request is within the rights. That a patch creates is not to be seen in it: [`Rights::may_create`].
    pub fn allow(&self, asked: &Asked) -> bool {
        // Discovery is open to every account.
        asked.resource.is_empty() || self.allow_verb(verb(asked), asked)
    }

    /// Whether a patch may create its object.
    pub fn may_create(&self, asked: &Asked) -> bool {
        // RBAC looks at the creation as at one without a name.
        let nameless = Asked {
            name: String::new(),
            ..asked.clone()
        };
        self.allow_verb("create", &nameless)
    }

    fn allow_verb(&self, verb: &str, asked: &Asked) -> bool {
        let resource = match asked.subresource.as_str() {
            "" => asked.resource.clone(),
            sub => format!("{}/{sub}", asked.resource),
        };
        let name = if asked.name.is_empty() {
            &asked.selected
        } else {
            &asked.name
        };
        self.rows.iter().any(|row| {
            row.group == asked.group
                && row.resource == resource
                && row.verbs.iter().any(|one| one == verb)
                && row.name.as_ref().is_none_or(|of| self.is_named(of, name))
                && self.is_at(row.place, &asked.namespace)
        })
    }

    fn is_named(&self, on_page: &str, name: &str) -> bool {
        match on_page.strip_prefix(RELEASE) {
            Some(rest) => {
                name.strip_prefix(&self.release)
                    .and_then(|name| name.strip_prefix('-'))
                    == Some(rest)
            }
            None => name == on_page,
        }
    }

    fn is_at(&self, place: Place, namespace: &str) -> bool {
        match (place, &self.watched) {
            (Place::Own, _) => namespace == self.own,
            (Place::ClusterOrNowhere, Some(_)) => false,
            (Place::Watched, Some(watched)) => watched.iter().any(|one| one == namespace),
            (Place::Cluster, _) | (Place::Watched | Place::ClusterOrNowhere, None) => true,
        }
    }
}

/// The verb by which RBAC knows a request.
pub fn verb(asked: &Asked) -> &'static str {
    match (&asked.method, asked.name.is_empty()) {
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "deletecollection",
        (&Method::DELETE, false) => "delete",
        _ if asked.watch => "watch",
        (_, true) => "list",
        (_, false) => "get",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Flags {
        Flags {
            instance: "rw".into(),
            ingress: false,
            gateway_api: false,
            buckets: false,
            tyk: None,
            namespaces: None,
        }
    }

    fn may(flags: &Flags, method: Method, uri: &str) -> bool {
        let asked = Asked::of(&method, &uri.parse().expect("a path"));
        Rights::of(flags, "ops").allow(&asked)
    }

    #[test]
    fn the_page_is_read_to_its_end_without_the_rows_of_the_job() {
        let lines = PAGE.lines().skip_while(|line| !line.contains("rights:begin"));
        let lines = lines.take_while(|line| !line.contains("rights:end"));
        let lines: Vec<&str> = lines.filter(|line| line.starts_with('|')).collect();
        let jobs = lines.iter().filter(|line| line.contains("for the Job")).count();
        assert_eq!(TABLE.len(), lines.len() - 2 - jobs);
        assert!(TABLE.len() > 30);
    }

    #[test]
    fn a_switch_brings_its_rights() {
        const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/web/ingresses/a";
        let on = Flags {
            ingress: true,
            ..flags()
        };
        assert!(!may(&flags(), Method::PATCH, INGRESSES));
        assert!(may(&on, Method::PATCH, INGRESSES));
        assert!(!may(&on, Method::PUT, INGRESSES));
        assert!(may(&on, Method::GET, "/apis/networking.k8s.io/v1/ingresses"));
        assert!(!may(&on, Method::PATCH, &format!("{INGRESSES}/status")));
    }

    #[test]
    fn rights_on_garages_kinds_go_when_tyk_is_on_alone() {
        const BUCKETS: &str = "/apis/garage.rajsingh.info/v1beta1/garagebuckets?watch=true";
        let tyk = Flags {
            tyk: Some("x".into()),
            ..flags()
        };
        let both = Flags {
            ingress: true,
            ..tyk.clone()
        };
        assert!(may(&flags(), Method::GET, BUCKETS));
        assert!(!may(&tyk, Method::GET, BUCKETS));
        assert!(may(&both, Method::GET, BUCKETS));
    }

    #[test]
    fn a_list_of_namespaces_limits_what_has_one() {
        let some = Flags {
            ingress: true,
            buckets: true,
            namespaces: Some(vec!["web".into()]),
            ..flags()
        };
        let list = |namespace: &str| format!("/apis/networking.k8s.io/v1{namespace}/ingresses");
        assert!(may(&some, Method::GET, &list("/namespaces/web")));
        assert!(!may(&some, Method::GET, &list("/namespaces/shop")));
        assert!(!may(&some, Method::GET, &list("")));
        assert!(!may(
            &some,
            Method::GET,
            "/apis/networking.k8s.io/v1/ingressclasses"
        ));
        assert!(may(&some, Method::GET, "/api/v1/namespaces"));
        // Finalizers of a bucket come off where its Role is gone already.
        let bucket = "/apis/garage.rajsingh.info/v1beta1/namespaces/shop/garagebuckets/a";
        assert!(may(&some, Method::PATCH, bucket));
        assert!(!may(&some, Method::PATCH, &format!("{bucket}/status")));
    }

    #[test]
    fn names_are_those_of_the_release_and_field_selectors_count_as_names() {
        let lease = |name: &str| format!("/apis/coordination.k8s.io/v1/namespaces/ops/leases/{name}");
        assert!(may(&flags(), Method::PATCH, &lease("rw-leader")));
        assert!(!may(&flags(), Method::PATCH, &lease("routewright-leader")));
        assert!(!may(&flags(), Method::PATCH, &lease("rw2-leader")));
        let crds = |selector: &str| {
            format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?fieldSelector={selector}")
        };
        assert!(may(
            &flags(),
            Method::GET,
            &crds("metadata.name%3Dgaragebuckets.garage.rajsingh.info")
        ));
        assert!(!may(&flags(), Method::GET, &crds("metadata.name%3Dother")));
        assert!(!may(&flags(), Method::GET, &crds("")));
        let create = Asked::of(&Method::PATCH, &lease("rw-leader").parse().expect("a path"));
        assert!(Rights::of(&flags(), "ops").may_create(&create));
        assert!(!Rights::of(&flags(), "elsewhere").may_create(&create));
    }

    #[test]
    fn discovery_needs_no_right() {
        assert!(may(&flags(), Method::GET, "/apis/networking.k8s.io/v1"));
        assert!(may(&flags(), Method::GET, "/api"));
    }
}
