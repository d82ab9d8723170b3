//! Plans to start from, and how to look into a document.
#![allow(dead_code)]

use std::{collections::BTreeMap, sync::Arc};

use routewright::tyk::{
    Settings,
    objects::{
        Fingerprint, Key,
        core::Certificate,
        route::{HeaderEdit, Method},
    },
    translate::{EVERY_PATH, EXTENSION, TykApi, translate},
    verdict::{
        ApiPlan, BaseDocument, CertificateUse, Connection, Mode, OperationPlan, StaticRedirect, Target,
    },
};
use serde_json::Value;

/// Route team/shop on Gateway infra/edge, any host, `/orders`, every method, one Service.
pub(crate) fn plan() -> ApiPlan {
    ApiPlan {
        route: Key::new("team", "shop"),
        gateway: Key::new("infra", "edge"),
        connection: Arc::new(Connection {
            url: "https://tyk.example.com".to_owned(),
            org: "org1".to_owned(),
            mode: Mode::OpenSource,
            context: Key::new("infra", "tyk"),
            fingerprint: Fingerprint("f".to_owned()),
        }),
        host: None,
        path: "/orders".to_owned(),
        tags: Vec::new(),
        certificates: Vec::new(),
        targets: vec![target("svc.team.svc.cluster.local:8080", 1)],
        prefix: None,
        operations: every_method(&OperationPlan::default()),
        base: None,
    }
}

pub(crate) fn target(authority: &str, weight: u32) -> Target {
    Target {
        authority: Some(authority.to_owned()),
        weight,
    }
}

pub(crate) fn unresolved(weight: u32) -> Target {
    Target {
        authority: None,
        weight,
    }
}

pub(crate) fn every_method(operation: &OperationPlan) -> BTreeMap<Method, OperationPlan> {
    methods(&Method::ALL, operation)
}

pub(crate) fn methods(methods: &[Method], operation: &OperationPlan) -> BTreeMap<Method, OperationPlan> {
    methods.iter().map(|m| (*m, operation.clone())).collect()
}

pub(crate) fn edit(set: &[(&str, &str)], remove: &[&str]) -> HeaderEdit {
    HeaderEdit {
        set: set
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect(),
        remove: remove.iter().map(|n| (*n).to_owned()).collect(),
    }
}

pub(crate) fn request(set: &[(&str, &str)], remove: &[&str]) -> OperationPlan {
    OperationPlan {
        request_headers: edit(set, remove).into(),
        ..OperationPlan::default()
    }
}

pub(crate) fn response(set: &[(&str, &str)], remove: &[&str]) -> OperationPlan {
    OperationPlan {
        response_headers: edit(set, remove).into(),
        ..OperationPlan::default()
    }
}

pub(crate) fn full_path(path: &str) -> OperationPlan {
    OperationPlan {
        full_path: Some(path.to_owned()),
        ..OperationPlan::default()
    }
}

pub(crate) fn redirect(location: &str, status: u16) -> OperationPlan {
    OperationPlan {
        redirect: Some(StaticRedirect {
            location: location.to_owned(),
            status,
        }),
        ..OperationPlan::default()
    }
}

pub(crate) fn certificate(leaf: &str) -> CertificateUse {
    CertificateUse {
        certificate: Certificate {
            leaf: Fingerprint(leaf.to_owned()),
            bundle: Fingerprint(format!("bundle of {leaf}")),
            names: Default::default(),
        },
        secret: Key::new("infra", leaf),
    }
}

pub(crate) fn base(document: Value) -> Option<Arc<BaseDocument>> {
    Some(Arc::new(BaseDocument {
        definition: Key::new("team", "auth"),
        document: document.into(),
    }))
}

pub(crate) fn api(plan: &ApiPlan) -> TykApi {
    translate(plan, &Settings::default()).unwrap()
}

/// A part of the extension of the plan's document, by JSON pointer below `x-tyk-api-gateway`; null where there is none.
pub(crate) fn extension(plan: &ApiPlan, pointer: &str) -> Value {
    api(plan).document[EXTENSION]
        .pointer(pointer)
        .cloned()
        .unwrap_or(Value::Null)
}

/// Methods that the document has an operation for.
pub(crate) fn operations(plan: &ApiPlan) -> Vec<String> {
    let item = &api(plan).document["paths"][EVERY_PATH];
    item.as_object().unwrap().keys().cloned().collect()
}

/// The canonical document as text.
pub(crate) fn text(plan: &ApiPlan) -> String {
    String::from_utf8(api(plan).canonical()).unwrap()
}

pub(crate) fn connection(org: &str) -> Arc<Connection> {
    Arc::new(Connection {
        org: org.to_owned(),
        ..Connection::clone(&plan().connection)
    })
}
