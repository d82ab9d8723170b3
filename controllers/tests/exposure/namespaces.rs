//! Stories of an installation that watches some namespaces, one of which it may not read.

use std::time::Duration;

use reconcile_kit::{runtime::Scope, testing::Verb};

use super::support::*;

#[tokio::test(start_paused = true)]
async fn a_namespace_without_rights_does_not_stop_the_others_at_a_start() {
    let server = server(true);
    put(&server, cluster());
    put(&server, bucket(by_ingress()));
    for verb in ["list", "watch", "get"] {
        server.deny_in("gone", OPERATOR, verb, "*");
    }
    let mut watched = both();
    watched.scope = Scope::Namespaces(vec!["web".into(), "gone".into()]);
    let mut story = Story::on(server, &watched).await;
    story.pass(Duration::from_secs(60)).await;
    let ready = story.readyz().await;
    assert!(
        story.ingress().is_some(),
        "after a minute: {}\n{ready}",
        story.says()
    );
    assert!(ready.contains("readyz: ok"), "{ready}");
    // the operator asks for the missing rights again, but not often
    story.pass(Duration::from_secs(600)).await;
    let calls = story.pass(Duration::from_secs(600)).await;
    let (begun_anew, calls): (Vec<_>, Vec<_>) = calls
        .into_iter()
        .partition(|c| matches!(c.verb, Verb::Watch | Verb::WatchMetadata));
    assert!(begun_anew.iter().all(|c| c.namespace != "gone"), "{begun_anew:?}");
    assert!(calls.iter().all(|c| c.namespace == "gone"), "{calls:?}");
    assert!(calls.len() <= 200, "{} requests in ten minutes", calls.len());
}
