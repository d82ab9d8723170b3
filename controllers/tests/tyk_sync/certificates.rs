//! Certificates are there before the APIs that name them, with their keys.

use routewright::tyk::{
    objects::{Fingerprint, Key, core::Certificate},
    sync::Job,
    verdict::{CertificateUse, Mode},
};
use routewright_tyk_double::Fault;

use crate::stage::{BOTH, Stage, api, job};

struct Pair {
    used: CertificateUse,
    pem: String,
    bundle: Vec<u8>,
}

fn pair(name: &str) -> Pair {
    let made = rcgen::generate_simple_self_signed([format!("{name}.example.com")]).unwrap();
    let pem = made.cert.pem();
    let bundle = format!("{pem}\n{}", made.signing_key.serialize_pem());
    let used = CertificateUse {
        certificate: Certificate {
            leaf: Fingerprint::of(made.cert.der()),
            bundle: Fingerprint::of(bundle.as_bytes()),
            names: Default::default(),
        },
        secret: Key::new("shop", name),
    };
    Pair {
        used,
        pem,
        bundle: bundle.into_bytes(),
    }
}

fn secured(stage: &Stage, pair: &Pair) -> Job {
    let mut bundles = stage.given.bundles.lock().unwrap();
    bundles.insert(pair.used.secret.clone(), pair.bundle.clone());
    Job {
        certificates: vec![pair.used.clone()],
        ..job("a", vec![api(1, "/a")])
    }
}

fn stored(pair: &Pair) -> String {
    format!("org1{}", pair.used.certificate.leaf.0)
}

fn certificates(mode: Mode) -> &'static str {
    match mode {
        Mode::OpenSource => "/tyk/certs",
        Mode::Dashboard => "/api/certs",
    }
}

#[tokio::test]
async fn it_is_uploaded_once_and_before_the_api() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let pair = pair("one");
        stage.clean(secured(&stage, &pair)).await;
        assert!(stage.tyk().certificates().contains_key(&stored(&pair)));
        let log = stage.log();
        let place = |start: &str| log.iter().position(|line| line.starts_with(start)).unwrap();
        assert!(
            place(&format!("POST {}", certificates(mode)))
                < place(if mode == BOTH[0] {
                    "POST /tyk/apis"
                } else {
                    "POST /api/apis"
                })
        );
        // a further process, and a rotation
        let next = stage.again();
        next.clean(secured(&next, &pair)).await;
        assert_eq!(stage.tyk().counts().uploads, 1);
        let renewed = self::pair("one");
        next.clean(secured(&next, &renewed)).await;
        assert_eq!(stage.tyk().counts().uploads, 2);
        assert!(
            stage.tyk().certificates().contains_key(&stored(&pair)),
            "never deleted"
        );
    }
}

#[tokio::test]
async fn one_without_its_key_is_replaced() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let pair = pair("one");
        // given somebody uploaded the certificate alone: it blocks the whole one
        let bare = routewright::tyk::client::Bundle(pair.pem.clone().into_bytes());
        let api = routewright::tyk::sync::Connector::connect(&*stage.given, &stage.connection)
            .await
            .unwrap();
        api.upload(&stored(&pair), &bare).await.unwrap();
        let found = api.certificate(&stored(&pair)).await.unwrap().unwrap();
        assert!(!found.has_private);
        // when ours comes
        stage.clean(secured(&stage, &pair)).await;
        // then the key is there
        let found = api.certificate(&stored(&pair)).await.unwrap().unwrap();
        assert!(found.has_private, "{mode:?}");
    }
}

#[tokio::test]
async fn a_duplicate_whose_answer_was_lost_is_success() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let pair = pair("one");
        stage
            .tyk()
            .inject(Fault::on("POST", certificates(mode)).drop_after());
        stage.clean(secured(&stage, &pair)).await;
        assert!(stage.tyk().certificates().contains_key(&stored(&pair)));
    }
}

#[tokio::test]
async fn what_is_wrong_with_it_is_told_and_the_api_is_written_all_the_same() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let (one, other) = (pair("one"), pair("other"));
        let mut wrong = one.pem.clone();
        wrong.push_str(
            std::str::from_utf8(&other.bundle)
                .unwrap()
                .split_once("-----END CERTIFICATE-----")
                .unwrap()
                .1,
        );
        let request = secured(&stage, &one);
        stage
            .given
            .bundles
            .lock()
            .unwrap()
            .insert(one.used.secret.clone(), wrong.into_bytes());
        let done = stage.submit(request).await;
        assert!(done.troubled.is_empty(), "{done:?}");
        let error = &done.certificates[&stored(&one)];
        assert!(error.message.contains("tls.key does not belong"), "{error}");
        assert!(!error.message.contains("PRIVATE KEY"));
        assert_eq!(stage.tyk().loaded().len(), 1);
    }
}

/// What a route hands in once its status says that everything stands.
fn again(stage: &Stage, pair: &Pair) -> Job {
    Job {
        trusted: true,
        ..secured(stage, pair)
    }
}

#[tokio::test]
async fn one_that_is_lost_is_noticed_and_uploaded_though_the_route_trusts_it() {
    let settings = routewright::tyk::sync::Settings {
        check_every: std::time::Duration::from_millis(100),
        ..crate::stage::settings()
    };
    for mode in BOTH {
        let stage = Stage::with(mode, settings.clone()).await;
        let pair = pair("one");
        stage.clean(secured(&stage, &pair)).await;
        stage.tyk().lose_certificates();
        stage
            .eventually("told", || stage.told().contains(&Key::new("shop", "a")))
            .await;
        stage.clean(again(&stage, &pair)).await;
        assert!(stage.tyk().certificates().contains_key(&stored(&pair)));
        // and the same for a process that has not seen it stand
        stage.tyk().lose_certificates();
        let next = stage.again();
        next.clean(again(&next, &pair)).await;
        next.eventually("told", || next.told().contains(&Key::new("shop", "a")))
            .await;
        next.clean(again(&next, &pair)).await;
        assert!(stage.tyk().certificates().contains_key(&stored(&pair)));
    }
}

#[tokio::test]
async fn one_that_is_not_taken_fails_each_time_it_is_asked_for_and_nobody_is_told_in_a_loop() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let pair = pair("one");
        let refusal = Fault::on("POST", certificates(mode)).always();
        stage.tyk().inject(refusal.status(403, "certificate is expired"));
        // given a route whose API stands and is confirmed, and whose certificate is not taken
        let first = stage.submit(secured(&stage, &pair)).await;
        assert!(
            first.troubled.is_empty() && first.certificates.len() == 1,
            "{first:?}"
        );
        for _ in 0..3 {
            let done = stage.submit(again(&stage, &pair)).await;
            assert_eq!(done.certificates.len(), 1, "{mode:?}: {done:?}");
        }
        assert_eq!(stage.told(), []);
        // when it is taken, then it is there
        stage.tyk().clear_faults();
        stage.clean(again(&stage, &pair)).await;
        assert!(stage.tyk().certificates().contains_key(&stored(&pair)));
    }
}

/// The certificate alone blocks the whole one; the actor clears the way.
pub(crate) async fn bare_then_whole(
    stage: &Stage,
    client: &std::sync::Arc<dyn routewright::tyk::client::TykApi>,
) {
    let pair = pair("one");
    let bare = routewright::tyk::client::Bundle(pair.pem.clone().into_bytes());
    assert_eq!(client.upload(&stored(&pair), &bare).await.unwrap(), stored(&pair));
    let whole = secured(stage, &pair);
    let request = Job {
        apis: Vec::new(),
        ..whole
    };
    stage.clean(request).await;
    assert!(
        client
            .certificate(&stored(&pair))
            .await
            .unwrap()
            .unwrap()
            .has_private
    );
}

/// The same leaf and key with another chain behind it.
fn rechained(pair: &Pair, secret: &str) -> Pair {
    let issuer = rcgen::generate_simple_self_signed(["issuer.example.com".to_owned()]).unwrap();
    let bundle = [pair.bundle.as_slice(), b"\n", issuer.cert.pem().as_bytes()].concat();
    Pair {
        used: CertificateUse {
            certificate: Certificate {
                leaf: pair.used.certificate.leaf.clone(),
                bundle: Fingerprint::of(&bundle),
                names: Default::default(),
            },
            secret: Key::new("shop", secret),
        },
        pem: pair.pem.clone(),
        bundle,
    }
}

#[tokio::test]
async fn another_chain_behind_the_same_leaf_takes_the_first_ones_place() {
    for mode in BOTH {
        let stage = Stage::new(mode).await;
        let pair = pair("one");
        stage.clean(secured(&stage, &pair)).await;
        // when the Secret has another chain
        let other = rechained(&pair, "one");
        stage.tyk().forget_requests();
        stage.clean(secured(&stage, &other)).await;
        // then the stored one is replaced, since its id is the leaf's and it is not overwritten
        assert_eq!(stage.tyk().counts().uploads, 2, "{mode:?}");
        let log = stage.log();
        let place = |start: &str| {
            let start = format!("{start} {}", certificates(mode));
            log.iter().position(|line| line.starts_with(&start)).unwrap()
        };
        assert!(place("DELETE") < place("POST"), "{log:?}");
        if mode == BOTH[0] {
            let reload = log.iter().position(|line| line.contains("block=true"));
            assert!(reload.is_some_and(|reload| place("POST") < reload), "{log:?}");
        }
        // and once; and another Secret with the first chain does not change it back and forth
        let before = stage.log().len();
        stage.clean(secured(&stage, &other)).await;
        let beside = Pair {
            used: CertificateUse {
                secret: Key::new("shop", "beside"),
                ..pair.used.clone()
            },
            ..pair
        };
        let mut both = secured(&stage, &beside);
        both.owner = crate::stage::owner("b");
        both.apis = vec![api(2, "/b").into()];
        stage.clean(both.clone()).await;
        stage.clean(secured(&stage, &other)).await;
        stage.clean(both).await;
        assert_eq!(stage.tyk().counts().uploads, 2, "{mode:?}");
        let more: Vec<String> = stage.log().split_off(before);
        assert!(!more.iter().any(|line| line.starts_with("DELETE")), "{more:?}");
    }
}

#[tokio::test]
async fn a_chain_that_cannot_be_replaced_is_told_and_tried_again() {
    for mode in BOTH {
        for method in ["DELETE", "POST"] {
            let stage = Stage::new(mode).await;
            let pair = pair("one");
            stage.clean(secured(&stage, &pair)).await;
            let other = rechained(&pair, "one");
            let refused = Fault::on(method, certificates(mode)).status(403, "it is in use");
            stage.tyk().inject(refused.always());
            let done = stage.submit(secured(&stage, &other)).await;
            assert!(
                done.certificates[&stored(&pair)].message.contains("in use"),
                "{done:?}"
            );
            assert!(done.troubled.is_empty());
            stage.tyk().clear_faults();
            stage.clean(secured(&stage, &other)).await;
            assert_eq!(stage.tyk().counts().uploads, 2, "{mode:?} {method}");
        }
    }
}
