//! The incremental answer equals the one from scratch, and `Changes` is exactly what changed.
//!
//! `TYK_MODEL_SEQUENCES` sets how many sequences are run (default 10 000).

use std::collections::BTreeMap;

use super::{
    super::{
        Settings,
        objects::{Event, Key, Kind, Object},
        translate::translate,
    },
    Model,
    random::{self, Random, Snapshot},
};

/// What a history comes to: the objects that are left, and the last word on bundles.
#[derive(Default)]
pub(super) struct Left {
    objects: BTreeMap<(Kind, Key), Object>,
    bundles: Option<Event>,
}

impl Left {
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Seen(object) => {
                let (kind, key) = object.id();
                self.objects.insert((kind, key.clone()), (**object).clone());
            }
            Event::Gone(kind, key) => {
                self.objects.remove(&(*kind, key.clone()));
            }
            Event::Unreadable(..) => panic!("none is made here"),
            Event::Bundles(_) => self.bundles = Some(event.clone()),
        }
    }

    /// A model that saw nothing but this, in some order, one by one or at once.
    pub(super) fn model(&self, r: &mut Random) -> Model {
        let mut events: Vec<Event> = self
            .objects
            .values()
            .map(|object| Event::Seen(Box::new(object.clone())))
            .chain(self.bundles.clone())
            .collect();
        r.shuffle(&mut events);
        let mut model = Model::new(Settings::default());
        if r.chance(50) {
            model.apply_all(events);
        } else {
            for event in events {
                model.apply(event);
            }
        }
        model
    }
}

/// A world, some events, and the same from scratch.
pub(super) fn sequence(seed: u64) {
    let mut r = Random::new(seed);
    let mut left = Left::default();
    let mut model = Model::new(Settings::default());
    let start: Vec<Event> = random::objects(&mut r)
        .into_iter()
        .map(|object| Event::Seen(Box::new(object)))
        .collect();
    start.iter().for_each(|event| left.note(event));
    let said = model.apply_all(start);
    let mut known = Snapshot::default();
    assert_eq!(said, known.follow(&model), "seed {seed}: at the start");
    for step in 0..r.of(&[4, 8, 12]) {
        let event = random::event(&mut r);
        left.note(&event);
        let said = model.apply(event.clone());
        assert_eq!(said, known.follow(&model), "seed {seed}, step {step}: {event:?}");
    }
    let scratch = left.model(&mut r);
    let other = Snapshot::of(&scratch);
    if known != other {
        let differs = known.changes(&other);
        for key in &differs.routes {
            assert_eq!(known.routes.get(key), other.routes.get(key), "seed {seed}: {key}");
        }
        for key in &differs.gateways {
            assert_eq!(
                known.gateways.get(key),
                other.gateways.get(key),
                "seed {seed}: {key}"
            );
        }
        panic!("seed {seed}: {differs:?}");
    }
    // nothing is left behind either
    assert_eq!(model.graph.len(), scratch.graph.len(), "seed {seed}: cells");
    assert_eq!(model.claims.len(), scratch.claims.len(), "seed {seed}: claims");
    assert_eq!(model.counts, scratch.counts, "seed {seed}: counts");
    assert_eq!(model.missing(), scratch.missing(), "seed {seed}: missing");
}

/// `part` of 4 of all sequences: they run beside each other.
fn sequences(part: u64) {
    let all: u64 = std::env::var("TYK_MODEL_SEQUENCES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(10_000);
    (0..all).filter(|seed| seed % 4 == part).for_each(sequence);
}

#[test]
fn incremental_equals_scratch_part_1_of_4() {
    sequences(0);
}

#[test]
fn incremental_equals_scratch_part_2_of_4() {
    sequences(1);
}

#[test]
fn incremental_equals_scratch_part_3_of_4() {
    sequences(2);
}

#[test]
fn incremental_equals_scratch_part_4_of_4() {
    sequences(3);
}

/// The worlds are worth the run: every reason that the model gives is met in them.
#[test]
fn random_worlds_meet_every_reason() {
    let mut met = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let mut r = Random::new(seed);
        let mut model = Model::new(Settings::default());
        let start = random::objects(&mut r);
        model.apply_all(start.into_iter().map(|object| Event::Seen(Box::new(object))));
        let snapshot = Snapshot::of(&model);
        for verdict in snapshot.routes.values() {
            // what is accepted has a document
            for plan in &verdict.apis {
                translate(plan, &Settings::default()).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            }
            for condition in verdict.parents.iter().flat_map(|p| &p.conditions) {
                met.insert(format!("HTTPRoute {} {}", condition.type_, condition.reason));
            }
        }
        for verdict in snapshot.gateways.values() {
            for condition in &verdict.conditions {
                met.insert(format!("Gateway {} {}", condition.type_, condition.reason));
            }
            for condition in verdict.listeners.iter().flat_map(|l| &l.conditions) {
                met.insert(format!("Listener {} {}", condition.type_, condition.reason));
            }
        }
        for verdict in snapshot.definitions.values() {
            met.insert(format!("Definition {}", verdict.condition.reason));
        }
    }
    for reason in [
        "HTTPRoute Accepted Accepted",
        "HTTPRoute Accepted NoMatchingParent",
        "HTTPRoute Accepted EnvironmentUnresolved",
        "HTTPRoute Accepted NotAllowedByListeners",
        "HTTPRoute Accepted NoMatchingListenerHostname",
        "HTTPRoute Accepted UnsupportedValue",
        "HTTPRoute Accepted BaseDocumentUnresolved",
        "HTTPRoute Accepted BaseDocumentInvalid",
        "HTTPRoute Accepted AttachmentConflict",
        "HTTPRoute Accepted DataPlaneShared",
        "HTTPRoute Accepted TranslationFailed",
        "HTTPRoute PartiallyInvalid UnsupportedValue",
        "HTTPRoute ResolvedRefs ResolvedRefs",
        "HTTPRoute ResolvedRefs RefNotPermitted",
        "HTTPRoute ResolvedRefs InvalidKind",
        "HTTPRoute ResolvedRefs BackendNotFound",
        "HTTPRoute ResolvedRefs UnsupportedProtocol",
        "Gateway Accepted Accepted",
        "Gateway Accepted Invalid",
        "Gateway Accepted InvalidParameters",
        "Gateway Accepted ListenersNotValid",
        "Gateway Programmed Programmed",
        "Gateway Programmed Invalid",
        "Gateway Programmed UnsupportedAddress",
        "Gateway Programmed AddressNotAssigned",
        "Listener Accepted PortUnavailable",
        "Listener Accepted UnsupportedProtocol",
        "Listener Accepted HostnameConflict",
        "Listener Accepted ProtocolConflict",
        "Listener ResolvedRefs InvalidCertificateRef",
        "Listener ResolvedRefs RefNotPermitted",
        "Listener ResolvedRefs InvalidRouteKinds",
        "Listener OverlappingTLSConfig OverlappingHostnames",
        "Definition Attached",
        "Definition NotAttached",
        "Definition BaseDocumentUnresolved",
        "Definition DocumentInvalid",
        "Definition AttachmentConflict",
        "Definition UnsupportedTarget",
    ] {
        assert!(met.contains(reason), "{reason} is never met; met: {met:#?}");
    }
}
