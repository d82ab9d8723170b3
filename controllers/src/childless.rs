//! Controllers without children: the parts of their stack. No decision of any controller, and nothing that is about one
//! system.

use std::{sync::Arc, time::Duration};

use reconcile_kit::{
    ApiKind, Planner,
    at_once::AtOnce,
    events::KubeEvents,
    layers::{conditions::Reporting, metadata::OperatorMetadata, owned_children::Owned, policy::Backoff},
    owned::{ChildCache, KubeChildWriter, Lookup, WriteMemory},
    runtime::controller::Forget,
    stack::{Parts, Timeouts},
    status::StatusContract,
    status_writer::KubeStatusWriter,
};

use crate::ground::{Ground, PREFIX};

/// No children: every look is a mistake.
struct Childless;

impl ChildCache for Childless {
    fn child(&self, _: &ApiKind, _: &str, _: &str) -> Lookup {
        Lookup::Unwatched
    }
}

/// The parts of a controller without children, and what forgets an object. `pace`: status of one object is written no
/// more often than that.
pub(crate) fn parts<P: Planner>(
    ground: &Ground,
    planner: P,
    contract: StatusContract,
    pace: Option<Duration>,
) -> (Parts<P>, Forget) {
    let manager = contract.manager;
    let events = KubeEvents::new(ground.client.clone(), manager, ground.pod.clone());
    // Where more than these reconcile at once, they wait for something else.
    let writer = AtOnce::new(KubeStatusWriter(ground.client.clone()), ground.concurrency);
    let reporting = Reporting::new(contract, Arc::new(writer), Arc::new(events));
    let reporting = Arc::new(match pace {
        Some(least) => reporting.paced(least),
        None => reporting,
    });
    let backoff = Backoff::default();
    let parts = Parts {
        planner: Arc::new(planner),
        features: Arc::new([]),
        presence: Arc::new(ground.presence.clone()),
        metadata: Arc::new(OperatorMetadata::default()),
        owned: Arc::new(Owned {
            manager: manager.into(),
            prefix: PREFIX.into(),
            cache: Arc::new(Childless),
            writer: Arc::new(KubeChildWriter::new(ground.client.clone(), manager)),
            memory: WriteMemory::default(),
            metrics: ground.metrics.clone(),
            squatters: None,
        }),
        reporting: Arc::clone(&reporting),
        lease: Arc::clone(&ground.lease),
        metrics: ground.metrics.clone(),
        backoff: backoff.clone(),
        timeouts: Timeouts::default(),
    };
    let forget = Arc::new(move |namespace: &str, name: &str| {
        backoff.forget(namespace, name);
        reporting.forget(namespace, name);
    });
    (parts, forget)
}
