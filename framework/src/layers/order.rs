//! The orders of layers that the compiler refuses, each with its reason. What it cannot refuse is in the table of
//! `tests/stack_order.rs`, where removing any layer or swapping any two neighbours makes a named property fail.
//! Documentation only; there is no code here.
//!
//! Stages have types of their own: a planner answers a [`Plan`](crate::Plan), `Metadata` turns it into
//! [`Labelled`](super::metadata::Labelled), `OwnedChildren` into [`Settled`](crate::Settled), `Conditions` into
//! [`Outcome`](crate::Outcome). This order compiles:
#![doc = story!("", "Outcome", "
    .layer(PolicyLayer(Backoff::default()))
    .layer(ConditionsLayer::<P>::new(reporting))
    .layer(EffectsLayer::<P, E>::new(effects, writer, \"m\"))
    .layer(OwnedChildrenLayer(owned))
    .layer(MetadataLayer(metadata))
    .layer(ApiPresenceLayer::<P>::new(presence))
    .layer(FeatureGateLayer::<P>::new(Arc::from([])))")]
//! # Removed
//!
//! Without `Conditions` nobody turns what was settled into an outcome:
#![doc = story!("compile_fail", "Outcome", "
    .layer(PolicyLayer(Backoff::default()))
    .layer(OwnedChildrenLayer(owned))
    .layer(MetadataLayer(metadata))
    .layer(ApiPresenceLayer::<P>::new(presence))")]
//! Without `OwnedChildren` nothing is settled:
#![doc = story!("compile_fail", "Outcome", "
    .layer(ConditionsLayer::<P>::new(reporting))
    .layer(MetadataLayer(metadata))
    .layer(ApiPresenceLayer::<P>::new(presence))")]
//! Without `Metadata` children would be created without labels, never seen by the cache, and created again:
#![doc = story!("compile_fail", "Settled<P::Verdict>", "
    .layer(OwnedChildrenLayer(owned))
    .layer(ApiPresenceLayer::<P>::new(presence))")]
//! # Swapped
//!
//! `OwnedChildren` outside `Effects`: effects work on what was settled, and children are applied before:
#![doc = story!("compile_fail", "Settled<P::Verdict>", "
    .layer(OwnedChildrenLayer(owned))
    .layer(EffectsLayer::<P, E>::new(effects, writer, \"m\"))
    .layer(MetadataLayer(metadata))")]
//! `Metadata` outside `OwnedChildren`: what is applied cannot be labelled afterwards:
#![doc = story!("compile_fail", "Settled<P::Verdict>", "
    .layer(MetadataLayer(metadata))
    .layer(OwnedChildrenLayer(owned))")]
//! `ApiPresence` outside `Metadata`: what holds answers a plan, and only a plan can be labelled:
#![doc = story!("compile_fail", "Settled<P::Verdict>", "
    .layer(OwnedChildrenLayer(owned))
    .layer(ApiPresenceLayer::<P>::new(presence))
    .layer(MetadataLayer(metadata))")]
