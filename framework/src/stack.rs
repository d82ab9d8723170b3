//! The whole stack of one controller, put together in the one order that compiles. No layer logic here.

use std::{sync::Arc, time::Duration};

use tower::{ServiceBuilder, util::BoxCloneSyncService};

use crate::{
    ApiKind, BoxReconcile, Planner,
    layers::{
        api_presence::{ApiPresenceLayer, Presence, PresenceSnapshot},
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

/// The inner net by default: a plan or an effect that takes longer becomes a condition.
pub const INNER_TIMEOUT: Duration = Duration::from_secs(60);
/// The outer net by default, for what even reporting could not end.
pub const OUTER_TIMEOUT: Duration = Duration::from_secs(75);

/// When a run is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For planning, effects and children.
    pub inner: Duration,
    /// For the whole run; must be longer, so that there is time to report.
    pub outer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            inner: INNER_TIMEOUT,
            outer: OUTER_TIMEOUT,
        }
    }
}

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
    /// When a run is given up.
    pub timeouts: Timeouts,
}

/// External effects and the finalizer that guards them.
pub struct External<P: Planner, E> {
    /// The effects.
    pub effects: Arc<E>,
    /// Name of the finalizer.
    pub finalizer: Arc<str>,
    /// Objects that get the finalizer.
    pub wanted: fn(&P::Object) -> bool,
    /// Patches of the owner.
    pub writer: Arc<dyn OwnerWriter>,
    /// Their field manager.
    pub manager: &'static str,
}

impl<P: Planner> Parts<P> {
    /// With no feature on, every API taken for served, and the lease always held: change the fields otherwise.
    pub fn new(
        planner: P,
        owned: Owned,
        reporting: Reporting,
        metadata: OperatorMetadata,
        metrics: Metrics,
    ) -> Self {
        Self {
            planner: Arc::new(planner),
            features: Arc::from([]),
            presence: Arc::new(|_: &ApiKind| Presence::Served),
            metadata: Arc::new(metadata),
            owned: Arc::new(owned),
            reporting: Arc::new(reporting),
            lease: Arc::new(|| true),
            metrics,
            backoff: Backoff::default(),
            timeouts: Timeouts::default(),
        }
    }

    /// For `ControllerSpec::forget`: called with namespace and name of an object that is gone, it drops whatever the
    /// stack keeps per object. Without it memory grows with every object that ever was.
    pub fn forget(&self) -> impl Fn(&str, &str) + Send + Sync + 'static {
        let (owned, reporting) = (Arc::clone(&self.owned), Arc::clone(&self.reporting));
        let backoff = self.backoff.clone();
        move |namespace, name| {
            backoff.forget(namespace, name);
            reporting.forget(namespace, name);
            owned.forget(namespace, name);
        }
    }
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
                .layer(TimeoutLayer(self.timeouts.outer))
                .layer(ConditionsLayer::<P>::new(self.reporting).counting(&self.metrics))
                .layer(TimeoutLayer(self.timeouts.inner))
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
                .layer(TimeoutLayer(self.timeouts.outer))
                .layer(ConditionsLayer::<P>::new(self.reporting).counting(&self.metrics))
                .layer(TimeoutLayer(self.timeouts.inner))
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
