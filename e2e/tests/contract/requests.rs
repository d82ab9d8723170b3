//! What each situation costs in requests, by the API server's own audit log.

use routewright_e2e::operator::Operator;
use routewright_e2e::stage::{Kind, Stage, both, restart, squatter};
use routewright_e2e::{Result, Scenario, scenario};
use serde_json::{Value, json};

#[tokio::test]
async fn each_situation_of_an_ingress_costs_what_the_table_says() {
    scenario(
        "each_situation_of_an_ingress_costs_what_the_table_says",
        async |s| table(&s, Kind::Ingress).await,
    )
    .await;
}

#[tokio::test]
async fn each_situation_of_a_route_costs_what_the_table_says() {
    scenario("each_situation_of_a_route_costs_what_the_table_says", async |s| {
        table(&s, Kind::Route).await
    })
    .await;
}

async fn table(s: &Scenario, kind: Kind) -> Result<()> {
    let (name, plural) = (kind.name(), kind.plural());
    let line = |verb: &str, code: u16| format!("{verb} {plural} {code}");
    let (create, update, refused, get, delete) = (
        line("apply", 201),
        line("apply", 200),
        line("apply", 409),
        line("get", 200),
        line("delete", 200),
    );
    let (status, event) = ("apply garagebuckets/status 200", "create events 201");
    // Given the operator with both kinds on, and a cluster that runs
    s.cluster.gateway_crds("standard").await?;
    let stage = Stage::new(s).await?;
    let mut operator = Operator::process(s.cluster, both(s.ns())).await?;
    stage.usual_garage().await?;

    // A bucket that is not in Garage yet costs nothing; once it is, its child is made, without a look first
    let mark = stage.mark()?;
    let team = json!({"example.test/team": "red"});
    let one = kind.exposure(&["site.example.test"], team.clone());
    stage.new_bucket("site", &one).await?;
    stage
        .costs("a bucket that is not in Garage", &operator, mark, &[])
        .await?;
    let mark = stage.mark()?;
    stage.made("site").await?;
    stage
        .costs(
            "creation",
            &operator,
            mark,
            &[(&create, 1), (status, 1), (event, 1)],
        )
        .await?;
    if kind == Kind::Route {
        let mark = stage.mark()?;
        stage.accept("site-website").await?;
        stage
            .costs(
                "its Gateway accepts the route",
                &operator,
                mark,
                &[(status, 1), (event, 1)],
            )
            .await?;
    }
    stage.reason("site", "Exposed").await?;

    // What does not concern exposure costs nothing
    let mark = stage.mark()?;
    stage
        .merge(
            "GarageBucket",
            "site",
            json!({"metadata": {"annotations": {"example.test/note": "x"}}}),
        )
        .await?;
    stage
        .merge_status("GarageBucket", "site", json!({"size": "1 GiB"}))
        .await?;
    stage
        .merge_status("GarageCluster", "garage", json!({"message": "well"}))
        .await?;
    stage
        .merge(
            name,
            "site-website",
            json!({"metadata": {"labels": {"example.test/mine": "stays"}}}),
        )
        .await?;
    stage
        .costs("nothing changed that matters", &operator, mark, &[])
        .await?;

    // A restart costs nothing
    let mark = stage.mark()?;
    restart(&mut operator).await?;
    stage.costs("restart", &operator, mark, &[]).await?;

    // A change of the spec
    let two = kind.exposure(
        &["site.example.test", "site.example.test.example.test"],
        team.clone(),
    );
    let two = if kind == Kind::Route {
        kind.exposure(&["site.example.test", "b.example.org"], team.clone())
    } else {
        two
    };
    let mark = stage.mark()?;
    if kind == Kind::Route {
        stage.expose("site", &two).await?;
        // The route waits for its Gateway again, which is a transition of the condition.
        stage
            .costs(
                "spec change",
                &operator,
                mark,
                &[(&update, 1), (status, 1), (event, 1)],
            )
            .await?;
        stage.accept("site-website").await?;
        stage.reason("site", "Exposed").await?;
    } else {
        let blue = kind.exposure(&["site.example.test"], json!({"example.test/team": "blue"}));
        stage.expose("site", &blue).await?;
        stage
            .costs("spec change", &operator, mark, &[(&update, 1), (status, 1)])
            .await?;
    }
    stage.calm(&operator).await?;

    // An edit of what is ours is undone; what is theirs stays
    let mark = stage.mark()?;
    stage
        .merge(
            name,
            "site-website",
            json!({"metadata": {"annotations": {"example.test/team": "theirs"}}}),
        )
        .await?;
    stage
        .costs("outside edit", &operator, mark, &[(&update, 1)])
        .await?;
    let live = stage.there(name, "site-website").await?;
    assert_ne!(live["metadata"]["annotations"]["example.test/team"], "theirs");
    assert_eq!(live["metadata"]["labels"]["example.test/mine"], "stays");

    // Its labels stripped: it is found again by its name
    let mark = stage.mark()?;
    let strip = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null, "app.kubernetes.io/instance": null}}});
    stage.merge(name, "site-website", strip).await?;
    stage
        .costs(
            "labels stripped",
            &operator,
            mark,
            &[(&refused, 1), (&get, 1), (&update, 1)],
        )
        .await?;

    // Foreign objects
    for (bucket, labels, expected) in [
        (
            "bare",
            json!({}),
            vec![(refused.as_str(), 1), (get.as_str(), 1), (status, 1), (event, 1)],
        ),
        (
            "labelled",
            json!({"app.kubernetes.io/managed-by": "routewright", "app.kubernetes.io/instance": "routewright"}),
            vec![(status, 1), (event, 1)],
        ),
    ] {
        stage
            .apply(squatter(kind, &format!("{bucket}-website"), labels))
            .await?;
        stage.calm(&operator).await?;
        let mark = stage.mark()?;
        stage.bucket(bucket, &kind.exposure(&[], json!({}))).await?;
        stage
            .costs(&format!("foreign, {bucket}"), &operator, mark, &expected)
            .await?;
    }
    for bucket in ["bare", "labelled"] {
        stage.delete("GarageBucket", bucket).await?;
        stage.delete(name, &format!("{bucket}-website")).await?;
    }
    stage.calm(&operator).await?;

    // Written by another manager under our owner's uid, by POST: taken over once, and pruned from then on
    let live = stage.there(name, "site-website").await?;
    operator.terminate()?;
    stage.delete(name, "site-website").await?;
    stage.gone(name, "site-website").await?;
    let theirs = json!({
        "apiVersion": live["apiVersion"], "kind": name, "spec": live["spec"],
        "metadata": {
            "name": "site-website", "labels": live["metadata"]["labels"], "annotations": live["metadata"]["annotations"],
            "ownerReferences": live["metadata"]["ownerReferences"],
        },
    });
    stage.post("other-operator", &theirs).await?;
    if kind == Kind::Route {
        stage.accept("site-website").await?;
    }
    let mark = stage.mark()?;
    operator.restart()?;
    operator.ready().await?;
    // The log cannot tell a JSON patch that names its manager from an apply: one of the two is the rewrite.
    stage
        .costs("written by another manager", &operator, mark, &[(&update, 2)])
        .await?;
    let mark = stage.mark()?;
    restart(&mut operator).await?;
    stage
        .costs("restart after the take-over", &operator, mark, &[])
        .await?;
    let without = kind.exposure(&["site.example.test"], json!({}));
    stage.expose("site", &without).await?;
    stage
        .until("pruned", name, "site-website", |o| {
            o.pointer("/metadata/annotations/example.test~1team")
                .is_none()
                .then_some(())
        })
        .await?;
    kind.settled_again(&stage, "site").await?;

    // And by PUT, over what stands
    stage.calm(&operator).await?;
    let mut live = stage.there(name, "site-website").await?;
    live["metadata"]["managedFields"].take();
    live["metadata"]["annotations"]["example.test/theirs"] = json!("kept");
    live["metadata"]["annotations"]["routewright.dev/applied-hash"] = json!("0");
    let mark = stage.mark()?;
    stage.put("other-operator", &live).await?;
    stage
        .costs("PUT by another manager", &operator, mark, &[(&update, 1)])
        .await?;

    // Switched to the other kind, and back to nothing
    let other = kind.other();
    let other_create = format!("apply {} 201", other.plural());
    let mark = stage.mark()?;
    stage
        .expose("site", &other.exposure(&["site.example.test"], json!({})))
        .await?;
    // An Ingress that stands is exposed at once; a route waits for its Gateway, which is a transition.
    let mut switch = vec![(delete.as_str(), 1), (other_create.as_str(), 1), (status, 1)];
    if other == Kind::Route {
        switch.push((event, 1));
    }
    stage.costs("kind switch", &operator, mark, &switch).await?;
    let mark = stage.mark()?;
    stage.expose("site", &Value::Null).await?;
    let other_delete = format!("delete {} 200", other.plural());
    stage
        .costs(
            "unset",
            &operator,
            mark,
            &[(&other_delete, 1), (status, 1), (event, 1)],
        )
        .await?;

    // A bucket that goes: garbage collection takes its child
    stage.bucket("brief", &kind.exposure(&[], json!({}))).await?;
    stage.there(name, "brief-website").await?;
    stage.calm(&operator).await?;
    let mark = stage.mark()?;
    stage.delete("GarageBucket", "brief").await?;
    stage.gone(name, "brief-website").await?;
    stage.costs("bucket deleted", &operator, mark, &[]).await
}
