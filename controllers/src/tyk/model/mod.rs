//! The model: holds what was seen last and answers what follows. `apply` is incremental; the answer is the same
//! whatever the order of events.

use super::{
    Settings,
    objects::{Event, Key},
    verdict::{Changes, ClassVerdict, DefinitionVerdict, GatewayVerdict, RouteVerdict},
};

/// Objects seen, and the answers that follow from them.
#[derive(Debug)]
pub struct Model {
    _settings: Settings,
}

impl Model {
    /// An empty model.
    pub fn new(settings: Settings) -> Self {
        Self { _settings: settings }
    }

    /// Takes an event in and tells whose answer changed.
    pub fn apply(&mut self, _event: Event) -> Changes {
        Changes::default()
    }

    /// Answer for a GatewayClass; `None` if it is not there or not ours.
    pub fn class(&self, _name: &str) -> Option<&ClassVerdict> {
        None
    }

    /// Answer for a Gateway; `None` if it is not there or its class is not ours.
    pub fn gateway(&self, _key: &Key) -> Option<&GatewayVerdict> {
        None
    }

    /// Answer for an HTTPRoute; `None` if it is not there or has no parent of ours.
    pub fn route(&self, _key: &Key) -> Option<&RouteVerdict> {
        None
    }

    /// Answer for a TykOasApiDefinition; `None` if it is not there or has no targetRefs.
    pub fn definition(&self, _key: &Key) -> Option<&DefinitionVerdict> {
        None
    }
}
