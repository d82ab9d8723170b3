//! A whole operator: every `Page` owns a ConfigMap with its text and says on a condition whether it is published.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::{Client, CustomResource};
use reconcile_kit::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What people write.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "example.org", version = "v1", kind = "Page", status = "PageStatus")]
#[kube(namespaced, schema = "disabled")]
pub struct PageSpec {
    text: String,
}

/// What the operator answers.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PageStatus {
    #[serde(default)]
    conditions: Vec<MetaCondition>,
}

const MAPS: ApiKind = ApiKind::new("", "v1", "ConfigMap", "configmaps");

/// The domain's part: what should stand, and what to say about it. No call, no clock.
struct Pages;

impl Planner for Pages {
    type Object = Page;
    type Verdict = ();
    const NAME: &'static str = "page";

    fn needs(_: &Page) -> Needs {
        Needs::default()
    }

    async fn plan(&self, request: &Request<Page>) -> Result<Plan<()>, ReconcileError> {
        let page = request.object.as_ref();
        if page.metadata.deletion_timestamp.is_some() {
            return Ok(Plan::hold(HoldReason::Terminating)); // garbage collection takes the child
        }
        let map = Desired::new(MAPS, page, json!({"data": {"index.html": page.spec.text}}));
        Ok(Plan::report(()).with(ChildPlan::Want(Box::new(map))))
    }

    fn report(_: &Page, _: &Verdict<()>, children: &Children) -> Report {
        let (yes, reason, message) = match children.0.first().map(|map| &map.state) {
            None => return Report::untouched(Outcome::Done),
            Some(ChildState::Foreign { owner }) => (false, "NameTaken", format!("owned by {owner}")),
            Some(ChildState::Failed(_, message)) => (false, "Failed", message.clone()),
            Some(ChildState::Waiting) => (false, "Terminating", "the ConfigMap is going".to_owned()),
            Some(_) => (true, "Published", String::new()),
        };
        Report::new(Outcome::Done).condition(Condition::new("Ready", yes, reason, message))
    }

    fn report_error(_: &Page, error: &ReconcileError) -> Report {
        let condition = Condition::new("Ready", false, "Failed", error.message.clone());
        Report::new(Outcome::Done).condition(condition)
    }

    fn conditions(page: &Page) -> &[MetaCondition] {
        page.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn status_field(_: &Page, _: &str) -> Option<Value> {
        None // only the condition is ours
    }
}

/// Runs until `stop`. The client must not retry by itself: the stack does.
pub async fn run(client: Client, stop: CancellationToken) -> Ended {
    let metrics = Metrics::new("pages");
    let hub = WatchHub::new(client.clone(), metrics.clone());
    let ours = Selector::labels("app.kubernetes.io/managed-by=pages");
    let (pages, maps) = (
        hub.typed::<Page>(&Scope::All, &Selector::default()),
        hub.children(MAPS, &Scope::All, &ours),
    );
    let triggers = Triggers::<Page>::default();
    let wake = triggers.clone();
    let wake = Arc::new(move |namespace: &str, name: &str| wake.push_name(Some(namespace), name));

    let caches = Arc::new(vec![(MAPS, maps.clone())]);
    let mut owned = Owned::new(client.clone(), "pages", "example.org", caches, &metrics);
    owned.squatters = Some(Squatters::new(client.clone(), wake));
    let _kept = (
        maps.listen(owned.memory.follow(MAPS)),
        maps.listen(on_change_of_child(&triggers)),
        pages.listen(on_change_of_self(&triggers, |_, _| false)),
        (maps.start(), pages.start()),
    );
    let contract = StatusContract {
        manager: "pages-status",
        conditions: &["Ready"],
        fields: &[],
        mode: StatusMode::Apply,
    };
    let reporting = Reporting::kube(client, contract, Pages::NAME);
    let metadata = OperatorMetadata::standard("pages", "default", Pages::NAME);
    let parts = Parts::new(Pages, owned, reporting, metadata, metrics);
    let forget = Arc::new(parts.forget());
    let mut spec = ControllerSpec::new(Pages::NAME, pages, triggers, parts.stack()).wait_for(&maps);
    spec.forget = Some(forget);
    run_controller(spec, stop, || ()).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = kube::Config::infer().await?;
    config.default_retry = false;
    run(Client::try_from(config)?, CancellationToken::new()).await; // until killed: nothing is left half-done
    Ok(())
}
