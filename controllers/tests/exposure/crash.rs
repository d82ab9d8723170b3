//! Killed between any two writes, or after a write whose answer never came: a new process comes to the same end. The
//! points are read from the log of an undisturbed run.

use reconcile_kit::testing::{ApiServer, Crash, Matcher};
use serde_json::{Value, json};

use super::support::*;

/// How a story begins and what happens then.
struct Tale {
    name: &'static str,
    before: Value,
    /// Exposed and ready before the tale begins?
    act: fn(&ApiServer),
}

fn expose(server: &ApiServer, exposure: Value) {
    server.edit(
        "GarageBucket",
        "web",
        "blog",
        json!({"spec": {"websiteExposure": exposure}}),
    );
}

fn tales() -> Vec<Tale> {
    vec![
        Tale {
            name: "creation by Ingress",
            before: Value::Null,
            act: |s| expose(s, by_ingress()),
        },
        Tale {
            name: "creation by HTTPRoute",
            before: Value::Null,
            act: |s| expose(s, by_route()),
        },
        Tale {
            name: "switch to HTTPRoute",
            before: by_ingress(),
            act: |s| expose(s, json!({"ingress": null, "gateway": by_route()["gateway"]})),
        },
        Tale {
            name: "switch to Ingress",
            before: by_route(),
            act: |s| expose(s, json!({"gateway": null, "ingress": {}})),
        },
        Tale {
            name: "removal of the Ingress",
            before: by_ingress(),
            act: |s| expose(s, Value::Null),
        },
        Tale {
            name: "removal of the HTTPRoute",
            before: by_route(),
            act: |s| expose(s, Value::Null),
        },
        Tale {
            name: "another host",
            before: by_ingress(),
            act: |s| expose(s, json!({"hostnames": ["blog"]})),
        },
        Tale {
            name: "website off",
            before: by_ingress(),
            act: |s| {
                drop(s.edit(
                    "GarageBucket",
                    "web",
                    "blog",
                    json!({"spec": {"website": {"enabled": false}}}),
                ))
            },
        },
    ]
}

/// A quiet operator before the tale begins.
async fn begin(tale: &Tale) -> Story {
    let mut story = Story::exposed(tale.before.clone()).await;
    story.settle().await;
    story
}

/// What is left at the end, without what differs from run to run.
fn end(server: &ApiServer) -> Value {
    let strip = |mut object: Value| {
        let metadata = object["metadata"].as_object_mut().unwrap();
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
        ] {
            metadata.remove(field);
        }
        for owner in object
            .pointer_mut("/metadata/ownerReferences")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            owner["uid"] = json!("");
        }
        for condition in object
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            condition["lastTransitionTime"] = json!("");
        }
        object
    };
    let kinds = ["Ingress", "HTTPRoute", "GarageBucket", "GarageCluster"];
    let all = kinds.map(|kind| {
        server
            .list(kind, "")
            .into_iter()
            .map(strip)
            .map(|mut object| {
                // The hash covers the owner's uid.
                if let Some(annotations) = object
                    .pointer_mut("/metadata/annotations")
                    .and_then(Value::as_object_mut)
                {
                    annotations
                        .remove("routewright.dev/applied-hash")
                        .expect("every child has a hash");
                }
                object
            })
            .collect::<Vec<_>>()
    });
    json!(all)
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_point_a_new_process_comes_to_the_same_end() {
    let (mut points, mut report) = (0, String::new());
    for tale in tales() {
        let mut story = begin(&tale).await;
        (tale.act)(&story.server);
        let calls = story.calls().await;
        let undisturbed = end(&story.server);
        let writes: Vec<String> = calls
            .iter()
            .filter(|c| c.user == OPERATOR && c.verb.is_write() && c.succeeded())
            .map(short)
            .collect();
        assert!(writes.len() >= 2, "{}: {writes:#?}", tale.name);
        report.push_str(&format!(
            "{}: {} writes: {}\n",
            tale.name,
            writes.len(),
            writes.join("; ")
        ));
        story.stop().await;

        for survived in 0..=writes.len() {
            for (answered, how) in [
                (true, Crash::Hang),
                (true, Crash::Error),
                (false, Crash::Hang),
                (false, Crash::Error),
            ] {
                if survived == 0 && !answered {
                    continue;
                }
                let mut story = begin(&tale).await;
                let mine = Matcher::writes().user(OPERATOR);
                if answered {
                    story.server.kill_after(mine, survived, how);
                } else {
                    story.server.kill_during(mine, survived, how);
                }
                (tale.act)(&story.server);
                eventually(&story.server, "the kill point", || {
                    story.server.is_killed().then_some(())
                })
                .await;
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                // The old process ends without another word.
                story.stop().await;
                story.server.revive();
                story.restart(&both()).await;
                let case = format!(
                    "{} after {survived} writes, answered {answered}, {how:?}",
                    tale.name
                );
                assert_eq!(end(&story.server), undisturbed, "{case}");
                let again = story.restart(&both()).await;
                assert_eq!(again, NOTHING, "{case}: and then there is nothing left to do");
                points += 1;
            }
        }
    }
    println!("{report}{points} kill points");
    assert!(points > 50, "{points} points:\n{report}");
}
