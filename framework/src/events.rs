//! Kubernetes events about reconciled objects. One call per event, so callers publish transitions only.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::{Note, error::classify, runtime::lock};

/// Where events go. A seam, so that layers can be tested alone. Failing to publish is not the reconcile's business.
#[async_trait]
pub trait EventSink: Send + Sync + 'static {
    /// Publishes one event about this object.
    async fn publish(&self, about: &ObjectReference, note: &Note);
}

/// Drops events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

#[async_trait]
impl EventSink for NoEvents {
    async fn publish(&self, _: &ObjectReference, _: &Note) {}
}

/// [`EventSink`] by events.k8s.io. Nothing is remembered: kube's recorder keeps every event for minutes and walks through
/// all of them at each publish, which ten thousand new objects pay for in memory and time. Callers publish transitions
/// only, so there is nothing to fold into a series.
#[derive(Clone)]
pub struct KubeEvents {
    client: Client,
    reporter: Reporter,
    /// Why the last event was not published, if it was not.
    problem: Arc<Mutex<Option<String>>>,
}

impl KubeEvents {
    /// Events report `controller` and, where given, the pod as their source.
    pub fn new(client: Client, controller: &str, instance: Option<String>) -> Self {
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance,
        };
        Self {
            client,
            reporter,
            problem: Arc::default(),
        }
    }

    /// Logs a problem once, until it changes or an event is published.
    fn warn(&self, reason: &str, problem: &str) {
        let mut known = lock(&self.problem);
        if known.as_deref() != Some(problem) {
            tracing::warn!(
                reason,
                "an event is not published, and others may not be: {problem}"
            );
            *known = Some(problem.to_owned());
        }
    }
}

/// events.k8s.io allows this many bytes in a note.
const MAX_NOTE: usize = 1024;

#[async_trait]
impl EventSink for KubeEvents {
    async fn publish(&self, about: &ObjectReference, note: &Note) {
        let mut text = note.message.clone();
        if text.len() > MAX_NOTE {
            let end = (0..=MAX_NOTE - 3)
                .rev()
                .find(|i| text.is_char_boundary(*i))
                .unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        let event = Event {
            type_: if note.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: note.reason.to_string(),
            note: Some(text),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        if let Err(error) = recorder.publish(&event, about).await {
            self.warn(&note.reason, &classify(&error).1);
        } else {
            lock(&self.problem).take();
        }
    }
}

/// Reference to a typed object.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    object.object_ref(&())
}
