//! Random small worlds from a seed: few names, so that objects meet; mostly right, so that more than the first error
//! is reached.

use std::collections::BTreeMap;

use super::{
    super::{
        httproute::names::FINALIZER,
        objects::{
            Event, Gateway, HttpRoute, Key, Kind, Object, Problem, Service,
            context::ConnectionFields,
            core::IngressAddress,
            gateway::{AllowedNamespaces, LabelSelector, Listener},
            route::{BackendRef, HeaderEdit, Method, ParentRef, PathRewrite, Redirect, Rule},
        },
        verdict::{Changes, ClassVerdict, DefinitionVerdict, GatewayVerdict, RouteVerdict},
    },
    Model,
    fixtures::*,
};

/// SplitMix64: the same numbers everywhere.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    /// True `percent` times in a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn some<T: Clone>(&mut self, percent: usize, values: &[T]) -> Option<T> {
        let value = self.of(values);
        self.chance(percent).then_some(value)
    }

    pub(super) fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i + 1));
        }
    }
}

/// Every object that a world may hold.
const NAMES: [(Kind, &str, &[&str]); 23] = [
    (Kind::GatewayClass, "", &["tyk", "alt"]),
    (Kind::OperatorContext, "infra", &["class", "alt", "own"]),
    (Kind::OperatorContext, "shop", &["own"]),
    (Kind::Gateway, "infra", &["edge", "inner"]),
    (Kind::Gateway, "shop", &["edge"]),
    (Kind::HttpRoute, "shop", &["a", "b", "c"]),
    (Kind::HttpRoute, "blog", &["a", "b"]),
    (Kind::HttpRoute, "infra", &["a"]),
    (Kind::Service, "infra", &["tyk"]),
    (Kind::Service, "shop", &["web", "api"]),
    (Kind::Service, "blog", &["web"]),
    (Kind::EndpointSlice, "shop", &["s1", "s2"]),
    (Kind::EndpointSlice, "blog", &["s1"]),
    (Kind::Secret, "infra", &["cert", "conn"]),
    (Kind::Secret, "shop", &["cert"]),
    (Kind::ReferenceGrant, "infra", &["grant"]),
    (Kind::ReferenceGrant, "shop", &["grant"]),
    (Kind::ReferenceGrant, "blog", &["grant"]),
    (Kind::TykOasApiDefinition, "shop", &["d1", "d2", "d3"]),
    (Kind::TykOasApiDefinition, "infra", &["d1", "d2"]),
    (Kind::ConfigMap, "shop", &["docs"]),
    (Kind::ConfigMap, "infra", &["docs"]),
    (Kind::Namespace, "", &["shop", "blog", "infra"]),
];

const NAMESPACES: [&str; 3] = ["infra", "shop", "blog"];
const HOSTS: [&str; 5] = [
    "a.example.com",
    "b.example.com",
    "*.example.com",
    "*.a.example.com",
    "x.a.example.com",
];
const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/tyk/x"];

/// A random object of a place.
fn object(r: &mut Random, kind: Kind, namespace: &str, name: &str) -> Object {
    match kind {
        Kind::GatewayClass => {
            let mut o = class();
            o.meta.key = Key::cluster(name);
            let context = if name == "tyk" { "class" } else { "alt" };
            o.parameters = Some(context_ref(Some("infra"), context)).filter(|_| r.chance(95));
            if r.chance(10) {
                o.controller_name = "example.org/other".into();
            }
            o.into()
        }
        Kind::OperatorContext => {
            let mut o = context();
            o.key = key(namespace, name);
            let mode = r.of(&["pro", "pro", "ce", "x"]);
            o.env = Some(env(
                mode,
                r.of(&["http://one:3000", "http://one:3000/", "http://two:3000"]),
            ))
            .filter(|_| r.chance(90));
            if r.chance(20) {
                o.secret_ref = Some(("conn".into(), Some("infra".into())));
            }
            let plane = o.data_plane.as_mut().unwrap();
            plane.service_ref = Some(("tyk".into(), Some("infra".into()))).filter(|_| r.chance(80));
            plane.tags = r
                .some(80, &[vec![], vec!["edge"], vec!["edge", "blue"], vec!["blue"]])
                .map(|tags| tags.into_iter().map(str::to_owned).collect());
            if r.chance(15) {
                o.data_plane = None;
            }
            if r.chance(4) {
                o.problems.push(Problem::new("spec.x", "unknown"));
            }
            o.into()
        }
        Kind::Gateway => gateway_object(r, namespace, name).into(),
        Kind::HttpRoute => route_object(r, namespace, name).into(),
        Kind::Service => service_object(r, namespace, name).into(),
        Kind::EndpointSlice => {
            let ready = r.of(&[&[][..], &["10.1.0.1"], &["10.1.0.1", "10.1.0.2"], &["fd00::1"]]);
            let mut o = slice(namespace, name, r.of(&["web", "api"]), r.of(&[80, 81]), ready);
            if r.chance(5) {
                o.service = None;
            }
            o.into()
        }
        Kind::Secret => {
            let mut o = tls_secret(namespace, name, r.of(&["leaf1", "leaf2"]));
            if name == "conn" {
                o.type_ = "Opaque".into();
                o.tls = None;
                o.connection = ConnectionFields {
                    auth: r.some(80, &[super::super::objects::Fingerprint("secret".into())]),
                    url: r.some(50, &["http://one:3000".to_owned()]),
                    ..ConnectionFields::default()
                };
            } else if r.chance(15) {
                o.tls = Some(Err("does not match".into()));
            }
            o.into()
        }
        Kind::ReferenceGrant => {
            let (from, to) = r.of(&[("HTTPRoute", "Service"), ("Gateway", "Secret")]);
            grant(
                namespace,
                from,
                r.of(&NAMESPACES),
                to,
                r.some(30, &["web", "cert"]),
            )
            .into()
        }
        Kind::TykOasApiDefinition => {
            let targets = match r.below(10) {
                0 => vec![],
                1 => vec![target("Service", "web")],
                2 => vec![target("HTTPRoute", "a"), target("HTTPRoute", "b")],
                3 | 4 => vec![target("Gateway", "edge")],
                _ => vec![target("HTTPRoute", r.of(&["a", "b", "c"]))],
            };
            let mut o = definition(namespace, name, r.of(&[1, 2]), targets);
            match r.below(12) {
                0 => o.config_map = None,
                1 => o.route_owned.push("spec.customDomain".into()),
                2 => o.config_map.as_mut().unwrap().key = Some("other".into()),
                _ => {}
            }
            o.into()
        }
        Kind::ConfigMap => {
            let mut o = config_map(namespace);
            match r.below(7) {
                0 => {
                    o.documents.insert("api.json".into(), Err("is not JSON".into()));
                }
                1 => {
                    o.documents.insert("api.json".into(), Ok(colliding().into()));
                }
                _ => {}
            }
            o.into()
        }
        Kind::Namespace => namespace_object(r, name),
    }
}

fn namespace_object(r: &mut Random, name: &str) -> Object {
    namespace(name, r.of(&[&[][..], &[("team", "red")], &[("team", "blue")]])).into()
}

fn listener_object(r: &mut Random, name: &str) -> Listener {
    let certificate = match r.below(4) {
        0 => secret_ref(Some("shop"), "cert"),
        _ => secret_ref(None, "cert"),
    };
    let mut o = if r.chance(30) {
        https(name, 443, r.of(&HOSTS), &[certificate])
    } else {
        http(name, r.of(&[80, 80, 80, 8080, 443, 9]))
    };
    if r.chance(40) {
        o.hostname = r.some(70, &HOSTS).map(str::to_owned);
    }
    o.namespaces = match r.below(6) {
        0 => AllowedNamespaces::Same,
        1 => AllowedNamespaces::Selector(LabelSelector {
            labels: [("team".to_owned(), "red".to_owned())].into(),
            ..LabelSelector::default()
        }),
        _ => AllowedNamespaces::All,
    };
    if r.chance(5) {
        o.kinds = vec![(
            super::super::objects::GATEWAY_GROUP.into(),
            r.of(&["GRPCRoute", "HTTPRoute"]).into(),
        )];
    }
    if r.chance(3) {
        o.protocol = "TCP".into();
    }
    o
}

fn gateway_object(r: &mut Random, namespace: &str, name: &str) -> Gateway {
    let names: &[&str] = r.of(&[
        &["web"][..],
        &["web", "alt"],
        &["web", "tls", "alt"],
        &["web", "alt"],
    ]);
    let listeners = names.iter().map(|name| listener_object(r, name)).collect();
    let mut o = gateway(namespace, name, listeners);
    o.class = r.of(&["tyk", "tyk", "tyk", "alt", "foreign"]).into();
    o.parameters = Some(context_ref(None, "own")).filter(|_| r.chance(40));
    if r.chance(5) {
        o.addresses = vec![("IPAddress".into(), "10.0.0.1".into())];
    }
    if r.chance(2) {
        o.problems.push(Problem::new("spec.x", "unknown"));
    }
    o
}

fn service_object(r: &mut Random, namespace: &str, name: &str) -> Service {
    let ports: &[u16] = if name == "tyk" {
        &[80, 443, 8080]
    } else {
        r.of(&[&[80][..], &[80, 81], &[81]])
    };
    let mut o = service(namespace, name, ports);
    match r.below(10) {
        0 => o.type_ = "ExternalName".into(),
        1 => {
            o.type_ = "LoadBalancer".into();
            o.ingress = r.of(&[vec![], vec![IngressAddress::Ip("192.0.2.1".into())]]);
        }
        2..=4 => o = headless(namespace, name, ports),
        5 => o.ports[0].app_protocol = r.some(50, &["grpc".to_owned()]),
        _ => {}
    }
    o
}

fn backend_object(r: &mut Random) -> BackendRef {
    let mut o = weighted(
        r.of(&["web", "web", "api", "absent"]),
        r.of(&[80, 80, 80, 81]),
        r.of(&[1, 1, 1, 0, 3]),
    );
    o.namespace = r.some(30, &["shop", "blog"]).map(str::to_owned);
    if r.chance(3) {
        o.kind = "Bucket".into();
    }
    if r.chance(3) {
        o.port = None;
    }
    o
}

pub(super) fn rule_object(r: &mut Random, index: usize) -> Rule {
    let backends = (0..r.of(&[1, 1, 1, 2, 0])).map(|_| backend_object(r)).collect();
    let mut o = rule(r.of(&PATHS), backends);
    o.matches[0].method = r.some(40, &[Method::Get, Method::Post]);
    if r.chance(20) {
        o.matches
            .push(matching(r.of(&PATHS), r.some(40, &[Method::Get, Method::Put])));
    }
    match r.below(12) {
        0 => o.filters.rewrite = Some(PathRewrite::Prefix(r.of(&["/", "/new", "/a", "/v$1"]).into())),
        1 => o.filters.rewrite = Some(PathRewrite::Full("/full".into())),
        2 => {
            o.backends.clear();
            o.filters.redirect = Some(Redirect {
                scheme: r.some(50, &["https".to_owned()]),
                hostname: "new.example.com".into(),
                port: r.some(30, &[8443]),
                path: "/new".into(),
                status: 302,
            });
        }
        3 => {
            o.filters.request_headers = HeaderEdit {
                set: [("X-A".to_owned(), r.of(&["1", "2", "$secret_env.X"]).to_owned())].into(),
                ..HeaderEdit::default()
            };
        }
        4 => o.problems.push(Problem::new(
            format!("spec.rules[{index}].retry"),
            "not supported",
        )),
        _ => {}
    }
    o
}

fn parent_object(r: &mut Random) -> ParentRef {
    let (namespace, name) = r.of(&[
        ("infra", "edge"),
        ("infra", "edge"),
        ("infra", "inner"),
        ("shop", "edge"),
        ("infra", "absent"),
    ]);
    let mut o = parent(namespace, name);
    o.section_name = r.some(25, &["web", "alt", "tls"]).map(str::to_owned);
    o.port = r.some(8, &[80, 443]);
    if r.chance(3) {
        o.kind = "Service".into();
    }
    if namespace == "shop" && r.chance(30) {
        o.namespace = None;
    }
    o
}

pub(super) fn route_object(r: &mut Random, namespace: &str, name: &str) -> HttpRoute {
    let mut o = route(name, &[]);
    o.meta = meta(namespace, name, r.of(&[1, 2, 3]));
    o.parents = (0..r.of(&[1, 1, 2, 3])).map(|_| parent_object(r)).collect();
    let mut hosts: Vec<String> = (0..r.of(&[0, 1, 1, 2]))
        .map(|_| r.of(&HOSTS).to_owned())
        .collect();
    hosts.dedup();
    o.hostnames = hosts;
    o.rules = (0..r.of(&[1, 1, 2, 3]))
        .map(|index| rule_object(r, index))
        .collect();
    if r.chance(3) {
        o.problems
            .push(Problem::new("spec.hostnames[0]", "is an IP address"));
    }
    o.meta.deleting = r.chance(5);
    if o.meta.deleting && r.chance(60) {
        o.held_by = vec![FINALIZER.to_owned()];
    }
    o
}

/// Any place that a world may hold.
fn place(r: &mut Random) -> (Kind, &'static str, &'static str) {
    let (kind, namespace, names) = r.of(&NAMES);
    (kind, namespace, r.of(names))
}

/// A world with something in most places.
pub(super) fn objects(r: &mut Random) -> Vec<Object> {
    let mut found = Vec::new();
    for (kind, namespace, names) in NAMES {
        for name in names {
            if r.chance(85) {
                found.push(object(r, kind, namespace, name));
            }
        }
    }
    r.shuffle(&mut found);
    found
}

/// Something that happens.
pub(super) fn event(r: &mut Random) -> Event {
    if r.chance(3) {
        let version = r.some(80, &["v1.6.3".to_owned(), "v0.1.0".to_owned()]);
        return Event::Bundles([("gateways".to_owned(), version)].into());
    }
    let (kind, namespace, name) = place(r);
    if r.chance(25) {
        Event::Gone(kind, key(namespace, name))
    } else {
        Event::Seen(Box::new(object(r, kind, namespace, name)))
    }
}

/// Every answer of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    pub(super) classes: BTreeMap<String, ClassVerdict>,
    pub(super) gateways: BTreeMap<Key, GatewayVerdict>,
    pub(super) routes: BTreeMap<Key, RouteVerdict>,
    pub(super) definitions: BTreeMap<Key, DefinitionVerdict>,
}

impl Snapshot {
    pub(super) fn of(model: &Model) -> Self {
        Self {
            classes: model.classes().map(|(k, v)| (k.to_owned(), v.clone())).collect(),
            gateways: model.gateways().map(|(k, v)| (k.clone(), v.clone())).collect(),
            routes: model.routes().map(|(k, v)| (k.clone(), v.clone())).collect(),
            definitions: model.definitions().map(|(k, v)| (k.clone(), v.clone())).collect(),
        }
    }

    /// Takes over the answers of a model; where they differed.
    pub(super) fn follow(&mut self, model: &Model) -> Changes {
        fn follow<'a, K, Q, V>(
            known: &mut BTreeMap<K, V>,
            now: impl Iterator<Item = (&'a Q, &'a V)>,
        ) -> std::collections::BTreeSet<K>
        where
            K: Ord + Clone + std::borrow::Borrow<Q>,
            Q: Ord + ToOwned<Owned = K> + ?Sized + 'a,
            V: PartialEq + Clone + 'a,
        {
            let now: BTreeMap<&Q, &V> = now.collect();
            let gone: Vec<K> = known
                .keys()
                .filter(|key| !now.contains_key((*key).borrow()))
                .cloned()
                .collect();
            for key in &gone {
                known.remove(key.borrow());
            }
            let mut changed: std::collections::BTreeSet<K> = gone.into_iter().collect();
            for (key, value) in now {
                if known.get(key) != Some(value) {
                    known.insert(key.to_owned(), value.clone());
                    changed.insert(key.to_owned());
                }
            }
            changed
        }
        Changes {
            classes: follow(&mut self.classes, model.classes()),
            gateways: follow(&mut self.gateways, model.gateways()),
            routes: follow(&mut self.routes, model.routes()),
            definitions: follow(&mut self.definitions, model.definitions()),
        }
    }

    /// Where two differ.
    pub(super) fn changes(&self, after: &Self) -> Changes {
        fn differing<K: Ord + Clone, V: PartialEq>(
            a: &BTreeMap<K, V>,
            b: &BTreeMap<K, V>,
        ) -> std::collections::BTreeSet<K> {
            let keys = a.keys().chain(b.keys());
            keys.filter(|key| a.get(key) != b.get(key)).cloned().collect()
        }
        Changes {
            classes: differing(&self.classes, &after.classes),
            gateways: differing(&self.gateways, &after.gateways),
            routes: differing(&self.routes, &after.routes),
            definitions: differing(&self.definitions, &after.definitions),
        }
    }
}
