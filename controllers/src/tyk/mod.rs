//! Gateway API on Tyk. The pure half: objects as they are seen, what follows from them, and the Tyk OAS documents. The
//! living half: what keeps model, Tyk and status in step.
//!
//! `objects` decodes, `model` decides, `translate` writes documents. Nothing in these three does I/O, reads a clock or
//! knows a client; the controllers and `routewright translate` run the same code. `world` feeds the model from watches,
//! `client` speaks to Tyk, `sync` keeps Tyk in step. Contract: design page on Tyk.

pub mod client;
pub mod controllers;
pub mod definition;
pub mod gateway;
pub mod gatewayclass;
pub mod httproute;
pub mod model;
pub mod objects;
pub mod sync;
pub mod translate;
pub mod verdict;
pub mod world;

/// What the model must know from flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--tyk-controller-name`: GatewayClasses with another controllerName are not ours.
    pub controller_name: String,
    /// `--cluster-domain`: the DNS domain of Services, without dots at its ends.
    pub cluster_domain: String,
}

/// Default of `--tyk-controller-name`.
pub const CONTROLLER_NAME: &str = "routewright.dev/tyk";

impl Default for Settings {
    fn default() -> Self {
        Self {
            controller_name: CONTROLLER_NAME.to_owned(),
            cluster_domain: "cluster.local".to_owned(),
        }
    }
}
