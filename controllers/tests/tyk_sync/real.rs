//! The same actors before a real open-source gateway, if one is given: `TYK_GATEWAY_BIN` or `TYK_GATEWAY_URL`, as for the
//! suite `gateway_contract`. Says so when none is.

use std::sync::Arc;

use routewright::tyk::{
    client::TykApi,
    sync::{Connector as _, Settings, Trouble},
    translate::stamp,
    verdict::Mode,
};

use crate::{
    stage::{SECRET, Stage, api, document, id, job, owner, removal, trusted, version},
    tyk_gateway::{Given, Switches, TykGateway},
};

async fn served(client: &Arc<dyn TykApi>, n: u32) -> Option<String> {
    let found = client.get(&id(n)).await.unwrap()?;
    let path = found.pointer("/x-tyk-api-gateway/server/listenPath/value")?;
    Some(path.as_str()?.to_owned())
}

#[tokio::test]
async fn a_life_in_a_real_gateway() {
    let Some(given) = Given::or_say() else {
        return;
    };
    let tyk = TykGateway::start(&given, Switches::On, SECRET);
    let (url, secret) = (tyk.url(), tyk.secret.clone());
    let stage = Stage::before(&url, &secret, Settings::default()).await;
    let client = stage.given.connect(&stage.connection).await.unwrap();
    // created, updated
    stage.clean(job("a", vec![api(1, "/a"), api(2, "/b")])).await;
    assert_eq!(served(&client, 1).await.as_deref(), Some("/a"));
    stage
        .clean(job("a", vec![version(1, "/a", 2), api(2, "/b")]))
        .await;
    // trusted by the next process, and looked at: equal, so that nothing is told
    let next = Stage::before(&url, &secret, Settings::default()).await;
    next.clean(trusted("a", vec![version(1, "/a", 2), api(2, "/b")]))
        .await;
    // a path that moves between ids
    let mut moved = job("a", vec![api(3, "/a"), api(2, "/b")]);
    moved.remove = vec![id(1)];
    next.clean(moved).await;
    assert_eq!(
        (served(&client, 1).await, served(&client, 3).await.as_deref()),
        (None, Some("/a"))
    );
    assert!(next.told().is_empty());
    // another owner
    let mut other = owner("a");
    other.cluster = "cluster-2".to_owned();
    client
        .put(&id(4), &stamp(api(4, "/theirs"), &other).document, false)
        .await
        .unwrap();
    client.reload().await.unwrap();
    let done = next.submit(job("c", vec![api(4, "/theirs")])).await;
    assert!(
        matches!(done.troubled[&id(4)], Trouble::Foreign { .. }),
        "{done:?}"
    );
    // a collision with an API that is not ours, and the path back once it is gone
    client
        .put(
            "theirs",
            &document("theirs", "shop.example.com", "/p", "http://theirs"),
            false,
        )
        .await
        .unwrap();
    client.reload().await.unwrap();
    let done = next.submit(job("d", vec![api(5, "/p")])).await;
    assert!(
        matches!(done.troubled[&id(5)], Trouble::Renamed { .. }),
        "{done:?}"
    );
    client.delete("theirs").await.unwrap();
    let third = Stage::before(&url, &secret, Settings::default()).await;
    third.clean(job("d", vec![api(5, "/p")])).await;
    assert_eq!(served(&client, 5).await.as_deref(), Some("/p"));
    // deleted and not reloaded by an earlier process
    client.delete(&id(5)).await.unwrap();
    let fourth = Stage::before(&url, &secret, Settings::default()).await;
    fourth.clean(job("d", vec![api(5, "/p")])).await;
    // a certificate without its key is replaced
    crate::certificates::bare_then_whole(&fourth, &client).await;
    // all gone
    for (route, ids) in [("a", vec![1, 2, 3]), ("d", vec![5])] {
        fourth.clean(removal(route, &ids)).await;
        for n in ids {
            assert_eq!(served(&client, n).await, None);
        }
    }
    client.delete(&id(4)).await.unwrap();
    client.reload().await.unwrap();
    assert_eq!(stage.mode, Mode::OpenSource);
}
