//! From contexts and Secrets of the cluster to a client, and to what is uploaded: read from the in-process API server.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::ByteString;
use reconcile_kit::testing::{ApiServer, ResourceDef};
use routewright::{
    telemetry::tyk::TykMeter,
    tyk::{
        client::{
            TykError, TykErrorClass,
            connect::KubeConnector,
            http::{Limits, Pools},
        },
        httproute::contexts::KubeContexts,
        objects::{Fingerprint, Key, core::Certificate},
        sync::{Connector as _, Contexts as _, Secrets},
        verdict::{CertificateUse, Connection, Mode},
    },
};
use routewright_tyk_double::{Double, Running};
use serde_json::{Value, json};

use crate::{
    stage::{BOTH, SECRET, api, id},
    tls,
};

struct Cluster {
    server: ApiServer,
    tyk: Running,
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

fn secret(name: &str, kind: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "tyk", "name": name}, "type": kind,
           "data": data})
}

impl Cluster {
    /// A context whose credential is in a Secret, before a stand-in that wants it.
    async fn new(mode: Mode) -> Self {
        let double = match mode {
            Mode::OpenSource => Double::gateway(),
            Mode::Dashboard => Double::dashboard(),
        };
        let tyk = double.secret(SECRET).org("org1").start().await.unwrap();
        let server = ApiServer::new();
        server.namespace("tyk");
        server.serve(ResourceDef::custom(
            "tyk.tyk.io",
            "v1alpha1",
            "OperatorContext",
            "operatorcontexts",
        ));
        server.create(
            json!({"apiVersion": "tyk.tyk.io/v1alpha1", "kind": "OperatorContext",
            "metadata": {"namespace": "tyk", "name": "main"},
            "spec": {"env": {"mode": if mode == Mode::OpenSource { "ce" } else { "pro" }, "url": tyk.url(),
                             "org": "org1"},
                     "secretRef": {"name": "credential"}}}),
        );
        server.create(secret("credential", "Opaque", json!({"TYK_AUTH": bytes(SECRET)})));
        Self { server, tyk }
    }

    fn context(&self, change: Value) {
        self.server.edit("OperatorContext", "tyk", "main", change);
    }

    fn connector(&self, extra_ca: Option<&[u8]>) -> KubeConnector {
        let pools = Arc::new(Pools::new(extra_ca, Limits::default()).unwrap());
        let client = self.server.client_as("operator");
        KubeConnector::new(client, pools, Arc::new(|| true), TykMeter::default())
    }

    async fn way(&self) -> Result<Arc<Connection>, TykError> {
        let contexts = KubeContexts(self.server.client_as("operator"));
        contexts
            .connection(&Key::new("tyk", "main"), Secrets::Anywhere)
            .await
    }

    /// Asks Tyk for something as the context says today.
    async fn ask(&self, extra_ca: Option<&[u8]>) -> Result<(), TykError> {
        let way = self.way().await?;
        let client = self.connector(extra_ca).connect(&way).await?;
        client.get(&id(1)).await.map(drop)
    }

    async fn refused(&self, says: &[&str]) {
        let before = self.tyk.handle().counts().requests;
        let error = self.ask(None).await.expect_err("it is refused");
        assert_eq!(error.class, TykErrorClass::NoConnection, "{error}");
        for part in says {
            assert!(error.message.contains(part), "{part} in {error}");
        }
        assert!(!error.message.contains(SECRET), "{error}");
        assert_eq!(self.tyk.handle().counts().requests, before, "Tyk was not asked");
    }
}

#[tokio::test]
async fn a_context_and_its_secret_lead_to_tyk() {
    for mode in BOTH {
        let cluster = Cluster::new(mode).await;
        cluster.ask(None).await.unwrap();
        // and the Secret may say what the context says, and beats it
        cluster.context(
            json!({"spec": {"env": {"url": "http://nowhere.invalid", "org": "other", "auth": "wrong"}}}),
        );
        let data = json!({"TYK_AUTH": bytes(SECRET), "TYK_URL": bytes(&cluster.tyk.url()), "TYK_ORG": bytes("org1")});
        cluster
            .server
            .edit("Secret", "tyk", "credential", json!({"data": data}));
        cluster.ask(None).await.unwrap();
        assert_eq!(cluster.way().await.unwrap().org, "org1");
        // and without a Secret the context may say all
        cluster.context(json!({"spec": {"secretRef": null,
            "env": {"url": cluster.tyk.url(), "org": "org1", "auth": SECRET}}}));
        cluster.ask(None).await.unwrap();
    }
}

#[tokio::test]
async fn a_secret_of_another_namespace_is_read_only_for_a_context_that_a_class_names() {
    let cluster = Cluster::new(Mode::OpenSource).await;
    let contexts = KubeContexts(cluster.server.client_as("operator"));
    let main = Key::new("tyk", "main");
    let own = contexts.connection(&main, Secrets::OwnNamespace).await.unwrap();
    assert_eq!(own, cluster.way().await.unwrap());
    // when it names the same Secret in another namespace
    cluster.server.namespace("far");
    cluster.server.create(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "far", "name": "credential"},
        "data": {"TYK_AUTH": bytes(SECRET)},
    }));
    cluster.context(json!({"spec": {"secretRef": {"name": "credential", "namespace": "far"}}}));
    assert!(contexts.connection(&main, Secrets::Anywhere).await.is_ok());
    let mark = cluster.server.mark();
    let error = contexts
        .connection(&main, Secrets::OwnNamespace)
        .await
        .unwrap_err();
    assert_eq!(error.class, TykErrorClass::NoConnection);
    let calls = cluster.server.calls_since(mark);
    assert!(calls.iter().all(|call| call.resource != "secrets"), "{calls:?}");
}

#[tokio::test]
async fn what_is_missing_is_named_and_tyk_is_not_asked() {
    for mode in BOTH {
        let cluster = Cluster::new(mode).await;
        // a key, an empty key, the Secret, the context
        for data in [
            json!({"TYK_AUTH": null, "OTHER": bytes(SECRET)}),
            json!({"TYK_AUTH": bytes("")}),
        ] {
            cluster
                .server
                .edit("Secret", "tyk", "credential", json!({"data": data}));
            cluster
                .refused(&[
                    "OperatorContext tyk/main",
                    "no auth",
                    "Secret tyk/credential",
                    "TYK_AUTH",
                ])
                .await;
        }
        cluster.server.delete("Secret", "tyk", "credential");
        cluster
            .refused(&["OperatorContext tyk/main", "tyk/credential"])
            .await;
        cluster.server.delete("OperatorContext", "tyk", "main");
        cluster
            .refused(&["OperatorContext tyk/main does not exist"])
            .await;
    }
}

#[tokio::test]
async fn what_is_of_the_wrong_type_is_named_with_its_field() {
    let cluster = Cluster::new(Mode::OpenSource).await;
    for (field, wrong) in [
        ("url", json!(8080)),
        ("url", json!("ftp://tyk")),
        ("url", json!("not a url")),
        ("mode", json!("community")),
        ("insecureSkipVerify", json!("yes")),
    ] {
        let before = cluster.server.get("OperatorContext", "tyk", "main").unwrap();
        cluster.context(json!({"spec": {"env": {field: wrong}}}));
        cluster.refused(&["tyk/main", field]).await;
        let old = before["spec"]["env"][field].clone();
        cluster.context(json!({"spec": {"env": {field: old}}}));
        cluster.ask(None).await.unwrap();
    }
}

#[tokio::test]
async fn what_changed_since_the_decision_is_not_used() {
    for mode in BOTH {
        let cluster = Cluster::new(mode).await;
        let decided = cluster.way().await.unwrap();
        // given a credential that was rotated since
        let data = json!({"TYK_AUTH": bytes("another")});
        cluster
            .server
            .edit("Secret", "tyk", "credential", json!({"data": data}));
        let Err(error) = cluster.connector(None).connect(&decided).await else {
            panic!("it is not used");
        };
        assert_eq!(error.class, TykErrorClass::NoConnection);
        assert!(error.message.contains("has changed meanwhile"), "{error}");
        assert!(!error.message.contains("another"), "{error}");
    }
}

#[tokio::test]
async fn owners_of_the_context_are_those_of_what_is_written() {
    for in_secret in [false, true] {
        let cluster = Cluster::new(Mode::Dashboard).await;
        cluster.context(json!({"spec": {"env": {"user_owners": ["u1"], "user_group_owners": ["g1"]}}}));
        if in_secret {
            let data = json!({"TYK_USER_OWNERS": bytes("u2,u3")});
            cluster
                .server
                .edit("Secret", "tyk", "credential", json!({"data": data}));
        }
        let way = cluster.way().await.unwrap();
        let client = cluster.connector(None).connect(&way).await.unwrap();
        client.put(&id(1), &api(1, "/a").document, false).await.unwrap();
        let users = if in_secret {
            json!(["u2", "u3"])
        } else {
            json!(["u1"])
        };
        assert_eq!(
            cluster.tyk.handle().owners(&id(1)),
            Some(json!({"userIds": users, "userGroupIds": ["g1"]}))
        );
    }
}

/// Carries TLS to the stand-in; its URL and its certificate.
async fn tls_before(tyk: &Running) -> (String, String) {
    let (acceptor, pem) = tls::self_signed();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let behind = tyk.handle().address();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut tyk = tokio::net::TcpStream::connect(behind).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut tyk).await;
            });
        }
    });
    (url, pem)
}

#[tokio::test]
async fn tls_is_trusted_by_the_extra_ca_or_when_it_need_not_be() {
    for mode in BOTH {
        let cluster = Cluster::new(mode).await;
        let (url, pem) = tls_before(&cluster.tyk).await;
        cluster.context(json!({"spec": {"env": {"url": url}}}));
        // given nobody who vouches for it
        let error = cluster.ask(None).await.unwrap_err();
        assert_eq!(error.class, TykErrorClass::Unreachable, "{error}");
        assert!(error.message.contains("certificate"), "{error}");
        // then the extra bundle does, or a context that does not ask
        cluster.ask(Some(pem.as_bytes())).await.unwrap();
        cluster.context(json!({"spec": {"env": {"insecureSkipVerify": true}}}));
        cluster.ask(None).await.unwrap();
        // and the Secret beats the context
        let data = json!({"TYK_TLS_INSECURE_SKIP_VERIFY": bytes("false")});
        cluster
            .server
            .edit("Secret", "tyk", "credential", json!({"data": data}));
        assert!(cluster.ask(None).await.is_err());
    }
    let broken = Pools::new(Some(b"no certificate"), Limits::default()).unwrap_err();
    assert!(broken.message.contains("extra CA"), "{broken}");
}

#[tokio::test]
async fn a_bundle_is_what_was_decided_about_or_nothing() {
    let cluster = Cluster::new(Mode::OpenSource).await;
    let made = rcgen::generate_simple_self_signed(["shop.example.com".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    cluster.server.create(secret(
        "tls",
        "kubernetes.io/tls",
        json!({"tls.crt": bytes(&chain), "tls.key": bytes(&key)}),
    ));
    let decoded = {
        let live = cluster.server.get("Secret", "tyk", "tls").unwrap();
        let decoded = routewright::tyk::objects::Secret::decode(&live).unwrap();
        decoded.tls.unwrap().unwrap()
    };
    assert_eq!(decoded.leaf, Fingerprint::of(made.cert.der()));
    let used = |secret: &str, certificate: &Certificate| CertificateUse {
        certificate: certificate.clone(),
        secret: Key::new("tyk", secret),
    };
    let connector = cluster.connector(None);
    // chain and key as they are
    let bundle = connector.bundle(&used("tls", &decoded)).await.unwrap();
    let text = String::from_utf8(bundle.0.clone()).unwrap();
    assert!(text.contains(chain.trim()) && text.contains(key.trim()));
    assert!(!format!("{bundle:?}").contains("PRIVATE"));
    // another certificate than was decided about, none, a broken one, one of another type
    let other = Certificate {
        leaf: Fingerprint("00".into()),
        ..decoded.clone()
    };
    let refused = async |used: CertificateUse, says: &str| {
        let error = connector.bundle(&used).await.unwrap_err();
        assert_eq!(error.class, TykErrorClass::NoConnection, "{error}");
        assert!(error.message.contains(says), "{says} in {error}");
        assert!(!error.message.contains("PRIVATE"), "{error}");
    };
    refused(used("tls", &other), "has changed meanwhile").await;
    refused(used("nowhere", &decoded), "Secret tyk/nowhere does not exist").await;
    cluster
        .server
        .edit("Secret", "tyk", "tls", json!({"data": {"tls.key": null}}));
    refused(used("tls", &decoded), "tls.key").await;
    cluster.server.create(secret(
        "opaque",
        "Opaque",
        json!({"tls.crt": bytes(&chain), "tls.key": bytes(&key)}),
    ));
    refused(used("opaque", &decoded), "Secret tyk/opaque").await;
}

#[tokio::test]
async fn who_may_not_write_writes_nothing() {
    for mode in BOTH {
        let cluster = Cluster::new(mode).await;
        let may = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&may);
        let connector = KubeConnector::new(
            cluster.server.client_as("operator"),
            Arc::new(Pools::new(None, Limits::default()).unwrap()),
            Arc::new(move || asked.load(Ordering::SeqCst)),
            TykMeter::default(),
        );
        let client = connector.connect(&cluster.way().await.unwrap()).await.unwrap();
        let error = client
            .put(&id(1), &api(1, "/a").document, false)
            .await
            .unwrap_err();
        assert_eq!(error.class, TykErrorClass::Fenced);
        assert!(cluster.tyk.handle().files().is_empty());
        may.store(true, Ordering::SeqCst);
        client.put(&id(1), &api(1, "/a").document, false).await.unwrap();
        assert_eq!(cluster.tyk.handle().files().len(), 1);
    }
}
