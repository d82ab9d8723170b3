//! What the API server refuses, with which words: the rules of the specification's webhook list, by CEL in the CRDs and
//! by the chart's policy; and that what became invalid can still be finished.

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use routewright_crds::cases::{CelCase, Expected, cel_cases};
use routewright_e2e::stage::Stage;
use routewright_e2e::{Result, Scenario, scenario, wait};
use serde_json::{Value, json};

use crate::TURN;
use crate::release::{Release, SOON, apply_crds, crds, schema, without_crds};

/// A release without Pods: only what the API server itself does.
fn quiet(more: &Value) -> Value {
    let mut values = json!({"replicaCount": 0});
    for (key, value) in more.as_object().unwrap() {
        values[key] = value.clone();
    }
    values
}

async fn buckets(s: &Scenario) -> Result<Api<DynamicObject>> {
    let gvk = GroupVersionKind::gvk("garage.rajsingh.info", "v1beta1", "GarageBucket");
    Ok(Api::namespaced_with(
        s.client().await?,
        s.ns(),
        &ApiResource::from_gvk(&gvk),
    ))
}

fn object(name: &str, spec: &Value) -> DynamicObject {
    let metadata = json!({"name": name});
    let all = json!({"apiVersion": "garage.rajsingh.info/v1beta1", "kind": "GarageBucket", "metadata": metadata, "spec": spec});
    serde_json::from_value(all).unwrap()
}

/// A bucket with website on and this exposure.
fn exposing(exposure: &Value) -> Value {
    json!({"clusterRef": {"name": "garage"}, "website": {"enabled": true}, "websiteExposure": exposure})
}

/// Sends it. What the API server said when it refused, with 422.
async fn create(api: &Api<DynamicObject>, name: &str, spec: &Value) -> Option<String> {
    match api.create(&PostParams::default(), &object(name, spec)).await {
        Ok(_) => None,
        Err(kube::Error::Api(e)) if e.code == 422 => Some(e.message.clone()),
        Err(e) => panic!("{name}: {e}"),
    }
}

/// A policy is in force about a second after it was made, the rules of a changed CRD a moment after; until a bucket is
/// refused that they must refuse.
async fn in_force(api: &Api<DynamicObject>, spec: &Value, words: &str) -> Result<()> {
    wait::eventually("the rules are in force", SOON, || async {
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        match api.create(&params, &object("probe", spec)).await {
            Err(kube::Error::Api(e)) if e.message.contains(words) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Clusters and backends in another namespace than the bucket's.
fn across() -> Value {
    let mut spec = exposing(&json!({"ingress": {}}));
    spec["clusterRef"]["namespace"] = json!("elsewhere");
    spec
}

#[tokio::test]
async fn every_rule_of_the_webhook_list_accepts_and_refuses() {
    scenario("every_rule_of_the_webhook_list_accepts_and_refuses", async |s| {
        let _turn = TURN.lock().await;
        // Given a release with its own CRDs, its policy and guards
        without_crds(s.cluster).await?;
        let release = Release::new(s.cluster, "routewright", s.ns())?;
        let guards = json!({
            "allowedHostnameSuffixes": ["example.com", "example.org"],
            "allowedIngressAnnotationPrefixes": ["cert-manager.io/", "team-"],
            "allowedHTTPRouteAnnotationPrefixes": ["external-dns.alpha.kubernetes.io/"],
            "allowedLabelPrefixes": ["team.example.com/"],
        });
        release.install(quiet(&json!({"guards": guards, "watchNamespaces": [s.ns()]}))).await?;
        let api = buckets(&s).await?;
        in_force(&api, &across(), "cannot reach").await?;
        let policy = format!(
            "ValidatingAdmissionPolicy '{0}' with binding '{0}' denied request: ", release.wide()
        );
        let own = s.ns();
        let gateway = |more: Value| {
            let mut exposure = json!({"gateway": {"parentRefs": [{"name": "public"}]}});
            for (key, value) in more.as_object().unwrap() {
                exposure[key] = value.clone();
            }
            exposing(&exposure)
        };
        let in_namespace = |namespace: &str, exposure: &Value| {
            let mut spec = exposing(exposure);
            spec["clusterRef"]["namespace"] = json!(namespace);
            spec
        };
        let website = |website: &Value| {
            json!({"clusterRef": {"name": "garage"}, "website": website, "websiteExposure": {"ingress": {}}})
        };
        // (rule, spec, words of the refusal; none: accepted)
        let by_policy = |words: &str| Some(format!("{policy}{words}"));
        let by_crd = |words: &str| Some(words.to_owned());
        let rows: Vec<(&str, Value, Option<String>)> = vec![
            ("exposure with website.enabled", website(&json!({"enabled": true})), None),
            ("exposure without website.enabled", website(&json!({})), by_crd("spec.websiteExposure needs spec.website.enabled: true")),
            ("exposure with website off", website(&json!({"enabled": false})), by_crd("spec.websiteExposure needs spec.website.enabled: true")),
            ("gateway alone", gateway(json!({})), None),
            ("both ingress and gateway", gateway(json!({"ingress": {}})), by_crd("spec.websiteExposure: set exactly one of ingress and gateway")),
            ("neither", exposing(&json!({})), by_crd("spec.websiteExposure: set exactly one of ingress and gateway")),
            ("different hostnames", gateway(json!({"hostnames": ["a.example.com", "b.example.com"]})), None),
            ("duplicate hostnames", gateway(json!({"hostnames": ["a.example.com", "A.example.com"]})), by_crd("spec.websiteExposure.hostnames: each hostname may be listed once")),
            ("wildcard", gateway(json!({"hostnames": ["*.example.com"]})), by_crd("spec.websiteExposure.hostnames: wildcards are not supported, list each hostname")),
            ("Ingress, cluster of the own namespace by name", in_namespace(own, &json!({"ingress": {}})), None),
            ("gateway across namespaces", in_namespace("elsewhere", &json!({"gateway": {"parentRefs": [{"name": "public"}]}})), None),
            ("cross-namespace Ingress", across(), by_policy("spec.clusterRef.namespace: is elsewhere: an Ingress cannot reach a GarageCluster in another namespace; use spec.websiteExposure.gateway")),
            ("Ingress, Service of the own namespace", exposing(&json!({"ingress": {}, "backendRef": {"name": "web", "namespace": own}})), None),
            ("gateway, ServiceImport elsewhere", gateway(json!({"backendRef": {"name": "web", "namespace": "elsewhere", "kind": "ServiceImport", "group": "multicluster.x-k8s.io"}})), None),
            ("Ingress, Service of another namespace", exposing(&json!({"ingress": {}, "backendRef": {"name": "web", "namespace": "elsewhere"}})), by_policy("spec.websiteExposure.backendRef.namespace: is elsewhere: an Ingress can only point to a Service of its own namespace; use gateway")),
            ("Ingress, no core Service", exposing(&json!({"ingress": {}, "backendRef": {"name": "web", "kind": "ServiceImport", "group": "multicluster.x-k8s.io"}})), by_crd("spec.websiteExposure.backendRef: an Ingress can only point to a core Service (group \"\", kind Service); use gateway for other kinds")),
            ("parentRef without name", exposing(&json!({"gateway": {"parentRefs": [{"sectionName": "http"}]}})), by_crd("spec.websiteExposure.gateway.parentRefs[0].name: Required value")),
            ("hostname of the suffix itself and below another", gateway(json!({"hostnames": ["example.com", "a.b.example.org"]})), None),
            ("hostname that only ends alike", gateway(json!({"hostnames": ["www.example.com", "badexample.com", "example.net"]})), by_policy("spec.websiteExposure.hostnames: badexample.com, example.net: not allowed here; allowed are example.com, example.org and names below")),
            ("annotations of an Ingress that are allowed", exposing(&json!({"ingress": {"annotations": {"cert-manager.io/cluster-issuer": "x", "team-name": "y"}}})), None),
            ("annotation of an Ingress that is not", exposing(&json!({"ingress": {"annotations": {"nginx.ingress.kubernetes.io/server-snippet": "x"}}})), by_policy("spec.websiteExposure.ingress.annotations: nginx.ingress.kubernetes.io/server-snippet: not allowed here; keys may begin with cert-manager.io/, team-")),
            ("annotation of a route that is allowed", exposing(&json!({"gateway": {"parentRefs": [{"name": "public"}], "annotations": {"external-dns.alpha.kubernetes.io/ttl": "60"}}})), None),
            ("annotation of a route that is not", exposing(&json!({"gateway": {"parentRefs": [{"name": "public"}], "annotations": {"cert-manager.io/cluster-issuer": "x"}}})), by_policy("spec.websiteExposure.gateway.annotations: cert-manager.io/cluster-issuer: not allowed here; keys may begin with external-dns.alpha.kubernetes.io/")),
            ("label of an Ingress that is allowed", exposing(&json!({"ingress": {"labels": {"team.example.com/name": "web"}}})), None),
            ("label of an Ingress that is not", exposing(&json!({"ingress": {"labels": {"team.example.com/name": "web", "shard": "a"}}})), by_policy("spec.websiteExposure.ingress.labels: shard: not allowed here; keys may begin with team.example.com/")),
            ("label of a route that is allowed", exposing(&json!({"gateway": {"parentRefs": [{"name": "public"}], "labels": {"team.example.com/name": "web"}}})), None),
            ("label of a route that is not", exposing(&json!({"gateway": {"parentRefs": [{"name": "public"}], "labels": {"policy": "none"}}})), by_policy("spec.websiteExposure.gateway.labels: policy: not allowed here; keys may begin with team.example.com/")),
        ];
        // When each is sent, then it gets its answer, word by word
        let mut wrong = Vec::new();
        for (i, (rule, spec, expected)) in rows.iter().enumerate() {
            let said = create(&api, &format!("row-{i}"), spec).await;
            let fits = match (&said, expected) {
                (None, None) => true,
                (Some(said), Some(words)) => said.contains(words),
                _ => false,
            };
            if !fits {
                wrong.push(format!("{rule}: {said:?}, expected {expected:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // And the same holds for an update
        let edit = Patch::Merge(json!({"spec": {"clusterRef": {"name": "garage", "namespace": null}, "websiteExposure": {"backendRef": {"name": "x", "namespace": "elsewhere"}}}}));
        let refused = api.patch("row-0", &PatchParams::default(), &edit).await.unwrap_err().to_string();
        assert!(refused.contains("backendRef.namespace: is elsewhere"), "{refused}");
        // And a namespace that the release does not watch is not judged
        let elsewhere = s.cluster.namespace("unwatched").await?;
        let gvk = GroupVersionKind::gvk("garage.rajsingh.info", "v1beta1", "GarageBucket");
        let there = Api::namespaced_with(s.client().await?, elsewhere.name(), &ApiResource::from_gvk(&gvk));
        assert_eq!(create(&there, "across", &across()).await, None);
        // And the server finds nothing to warn about in the expressions
        let typed = s.cluster.kubectl([
            "get", "validatingadmissionpolicy", &release.wide(), "-o", "jsonpath={.status.typeChecking.expressionWarnings}",
        ])?;
        assert_eq!(typed, "");
        release.uninstall().await
    })
    .await;
}

/// The product's schema without rules and required fields: what another operator's CRD may be.
fn theirs() -> Vec<Value> {
    crds(|crd| {
        let exposure = "/properties/spec/properties/websiteExposure";
        if let Some(part) = schema(crd).pointer_mut(exposure) {
            *part = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        let spec = schema(crd).pointer_mut("/properties/spec").unwrap();
        spec.as_object_mut().unwrap().remove("x-kubernetes-validations");
    })
}

#[tokio::test]
async fn beside_another_operator_the_policy_carries_every_rule_of_exposure() {
    scenario(
        "beside_another_operator_the_policy_carries_every_rule_of_exposure",
        async |s| {
            let _turn = TURN.lock().await;
            // Given CRDs of another operator, which accept any exposure
            without_crds(s.cluster).await?;
            apply_crds(&s, &theirs())?;
            let api = buckets(&s).await?;
            let both = exposing(&json!({"ingress": {}, "gateway": {"parentRefs": [{"name": "g"}]}}));
            assert_eq!(create(&api, "before", &both).await, None);
            // When a release with its defaults is installed, then it leaves the CRDs alone
            let release = Release::new(s.cluster, "beside", s.ns())?;
            release.install(quiet(&json!({}))).await?;
            assert!(
                !release
                    .helm(&["get", "manifest", &release.name])
                    .await?
                    .contains("CustomResourceDefinition")
            );
            let notes = release.helm(&["get", "notes", &release.name]).await?;
            assert!(notes.contains("left as they are"), "{notes}");
            in_force(&api, &both, "exactly one").await?;
            // And every case of exposure is answered as with our own CRDs, creations and updates
            let (mut wrong, mut sent) = (Vec::new(), 0);
            let families = ["exposure:", "hostnames:", "backendRef:", "parentRefs:"];
            let of_exposure = |case: &CelCase| families.iter().any(|f| case.name.starts_with(f));
            for case in cel_cases().into_iter().filter(of_exposure) {
                let name = case.object["metadata"]["name"].as_str().unwrap();
                let said = match &case.old {
                    None => create(&api, name, &case.object["spec"]).await,
                    Some(old) => {
                        assert_eq!(create(&api, name, &old["spec"]).await, None, "{}", case.name);
                        let patch =
                            Patch::Merge(json!({"spec": replacing(&old["spec"], &case.object["spec"])}));
                        match api.patch(name, &PatchParams::default(), &patch).await {
                            Ok(_) => None,
                            Err(e) => Some(e.to_string()),
                        }
                    }
                };
                let fits = match (&said, case.expected) {
                    (None, Expected::Accept) => true,
                    // CEL counts no elements: the list is named, not the place in it.
                    (Some(said), Expected::Reject(words)) => {
                        said.contains(words.split('[').next().unwrap()) && said.contains(&release.wide())
                    }
                    _ => false,
                };
                if !fits {
                    wrong.push(format!("{}: {said:?}, expected {:?}", case.name, case.expected));
                }
                sent += 1;
            }
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            assert!(sent > 30, "only {sent} cases");
            // And what only the policy knows holds here too
            let said = create(&api, "across", &across()).await.unwrap();
            assert!(
                said.contains("an Ingress cannot reach a GarageCluster in another namespace"),
                "{said}"
            );
            // And buckets without exposure are the other operator's business
            assert_eq!(
                create(
                    &api,
                    "plain",
                    &json!({"clusterRef": {"name": "garage"}, "bucketId": "x"})
                )
                .await,
                None
            );
            release.uninstall().await
        },
    )
    .await;
}

/// A merge patch from one object to another: what is gone becomes null.
fn replacing(old: &Value, new: &Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old
                .keys()
                .filter(|k| !new.contains_key(*k))
                .map(|k| (k.clone(), Value::Null));
            let kept = new
                .iter()
                .map(|(k, v)| (k.clone(), replacing(old.get(k).unwrap_or(&Value::Null), v)));
            gone.chain(kept).collect()
        }
        (_, new) => new.clone(),
    }
}

#[tokio::test]
async fn what_became_invalid_can_still_be_finished() {
    scenario("what_became_invalid_can_still_be_finished", async |s| {
        let _turn = TURN.lock().await;
        // Given buckets from a time without rules, each with a finalizer: one breaks the policy, one the guards, one CEL
        without_crds(s.cluster).await?;
        apply_crds(&s, &theirs())?;
        let stage = Stage::new(&s).await?;
        let api = buckets(&s).await?;
        let both = exposing(&json!({"ingress": {}, "gateway": {"parentRefs": [{"name": "g"}]}}));
        let guarded = exposing(&json!({"hostnames": ["www.example.net"], "ingress": {}}));
        let old = [("policy", across()), ("guards", guarded), ("crd", both)];
        for (name, spec) in &old {
            assert_eq!(create(&api, name, spec).await, None);
            let held = json!({"metadata": {"finalizers": ["example.test/held"]}});
            stage.merge("GarageBucket", name, held).await?;
        }
        // When the rules come: the CRDs of this product, the policy, guards
        apply_crds(&s, &crds(|_| {}))?;
        in_force(&api, &old[2].1, "exactly one").await?;
        let release = Release::new(s.cluster, "strict", s.ns())?;
        release
            .install(quiet(
                &json!({"guards": {"allowedHostnameSuffixes": ["example.com"]}}),
            ))
            .await?;
        in_force(&api, &across(), "cannot reach").await?;
        let edit = |more: Value| json!({"spec": more});
        for (name, spec) in &old {
            // Then what leaves the spec as it is goes through: labels, status, the whole object written again
            stage
                .merge(
                    "GarageBucket",
                    name,
                    json!({"metadata": {"labels": {"touched": "yes"}}}),
                )
                .await?;
            stage
                .merge_status("GarageBucket", name, json!({"bucketId": "x"}))
                .await?;
            let mut whole = stage.get("GarageBucket", name).await?.unwrap();
            whole["metadata"]["annotations"] = json!({"touched": "yes"});
            stage.put("scenario", &whole).await?;
            // And so does a change of what the rules have no say in
            stage
                .merge("GarageBucket", name, edit(json!({"quotas": {"maxObjects": 3}})))
                .await?;
            // And a change of what it judges, which leaves it invalid, does not
            let exposure = match *name {
                // What guards have refused since may stay; what is new must fit.
                "guards" => {
                    let fits = json!({"hostnames": ["www.example.net", "www.example.com"], "ingress": {"ingressClassName": "x"}});
                    stage.merge("GarageBucket", name, edit(json!({ "websiteExposure": fits }))).await?;
                    json!({"hostnames": ["www.example.net", "new.example.net"]})
                }
                _ => json!({"hostnames": ["www.example.com"]}),
            };
            let change = stage
                .merge("GarageBucket", name, edit(json!({ "websiteExposure": exposure })))
                .await;
            let refused = change.unwrap_err().to_string();
            assert!(refused.contains("spec."), "{name}: {refused}");
            if *name == "guards" {
                assert!(
                    refused.contains("hostnames: new.example.net: not allowed here"),
                    "{refused}"
                );
            }
            // And it can be deleted, and whoever holds it can let go
            stage.delete("GarageBucket", name).await?;
            let dying = stage.get("GarageBucket", name).await?.unwrap();
            assert!(dying["metadata"]["deletionTimestamp"].is_string(), "{dying}");
            stage
                .merge("GarageBucket", name, json!({"metadata": {"finalizers": null}}))
                .await?;
            stage.gone("GarageBucket", name).await?;
            // And it cannot come again as it was
            assert!(create(&api, name, spec).await.is_some(), "{name}");
        }
        release.uninstall().await
    })
    .await;
}
