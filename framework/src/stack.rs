//! The whole stack of one controller, put together in the one order that compiles. No layer logic here.

use std::{sync::Arc, time::Duration};

use tower::{ServiceBuilder, util::BoxCloneSyncService};

use crate::{
    BoxReconcile, Planner,
    layers::{
        api_presence::{ApiPresenceLayer, PresenceSnapshot},
        catch_panic::CatchPanicLayer,
        conditions::{ConditionsLayer, Reporting},
        effects::{Effects, EffectsLayer},
        feature_gate::{FeatureGateLayer, Features},
        finalizer::FinalizerLayer,
        leader_gate::{LeaderGateLayer, Lease},
        metadata::{MetadataLayer, OperatorMetadata},
        metrics::MetricsLayer,
        owned_children::{Owned, OwnedChildrenLayer},
        planner::PlannerService,
        policy::{Backoff, PolicyLayer},
        timeout::TimeoutLayer,
        trace::TraceLayer,
    },
    owner::OwnerWriter,
    runtime::Metrics,
};

/// The inner net: a plan or an effect that takes longer becomes a condition.
pub const INNER_TIMEOUT: Duration = Duration::from_secs(60);
/// The outer net, for what even reporting could not end.
pub const OUTER_TIMEOUT: Duration = Duration::from_secs(75);

/// What a stack is made of.
pub struct Parts<P: Planner> {
    /// The planner.
    pub planner: Arc<P>,
    /// Features that are on.
    pub features: Features,
    /// What the API server serves.
    pub presence: Arc<dyn PresenceSnapshot>,
    /// What every child carries.
    pub metadata: Arc<OperatorMetadata>,
    /// Applying children.
    pub owned: Arc<Owned>,
    /// Reporting.
    pub reporting: Arc<Reporting>,
    /// Whether this process may act.
    pub lease: Arc<dyn Lease>,
    /// Counters.
    pub metrics: Metrics,
    /// Failures per object.
    pub backoff: Backoff,
}

/// External effects and the finalizer that guards them.
pub struct External<P: Planner, E> {
    /// The effects.
    pub effects: Arc<E>,
    /// Name of the finalizer.
    pub finalizer: &'static str,
    /// Objects that get the finalizer.
    pub wanted: fn(&P::Object) -> bool,
    /// Patches of the owner.
    pub writer: Arc<dyn OwnerWriter>,
    /// Their field manager.
    pub manager: &'static str,
}

impl<P> Parts<P>
where
    P: Planner,
    P::Object: serde::de::DeserializeOwned,
{
    /// A controller whose only effects are children and status.
    pub fn stack(self) -> BoxReconcile<P::Object> {
        BoxCloneSyncService::new(
            ServiceBuilder::new()
                .layer(TraceLayer(P::NAME))
                .layer(MetricsLayer::new(P::NAME, &self.metrics))
                .layer(PolicyLayer(self.backoff))
                .layer(LeaderGateLayer(self.lease))
                .layer(CatchPanicLayer)
                .layer(TimeoutLayer(OUTER_TIMEOUT))
                .layer(ConditionsLayer::<P>::new(self.reporting))
                .layer(TimeoutLayer(INNER_TIMEOUT))
                .layer(CatchPanicLayer)
                .layer(OwnedChildrenLayer(self.owned))
                .layer(MetadataLayer(self.metadata))
                .layer(ApiPresenceLayer::<P>::new(self.presence))
                .layer(FeatureGateLayer::<P>::new(self.features))
                .service(PlannerService::new(self.planner)),
        )
    }

    /// A controller with external effects.
    pub fn stack_with<E: Effects<P>>(self, external: External<P, E>) -> BoxReconcile<P::Object> {
        let finalizer = FinalizerLayer::new(
            external.finalizer,
            external.wanted,
            Arc::clone(&external.writer),
            external.manager,
        );
        BoxCloneSyncService::new(
            ServiceBuilder::new()
                .layer(TraceLayer(P::NAME))
                .layer(MetricsLayer::new(P::NAME, &self.metrics))
                .layer(PolicyLayer(self.backoff))
                .layer(LeaderGateLayer(self.lease))
                .layer(CatchPanicLayer)
                .layer(TimeoutLayer(OUTER_TIMEOUT))
                .layer(ConditionsLayer::<P>::new(self.reporting))
                .layer(TimeoutLayer(INNER_TIMEOUT))
                .layer(CatchPanicLayer)
                .layer(finalizer)
                .layer(EffectsLayer::<P, E>::new(
                    external.effects,
                    external.writer,
                    external.manager,
                ))
                .layer(OwnedChildrenLayer(self.owned))
                .layer(MetadataLayer(self.metadata))
                .layer(ApiPresenceLayer::<P>::new(self.presence))
                .layer(FeatureGateLayer::<P>::new(self.features))
                .service(PlannerService::new(self.planner)),
        )
    }
}
