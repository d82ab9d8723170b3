//! `tyk-httproute`: keeps the APIs of each HTTPRoute in Tyk and says in its status what came of it.
//!
//! `intent` decides what is to be done, `ledger` what follows from what came of it, `memory` is the annotation, `entries`
//! what stands in status, `names` under which names an
//! installation marks routes: all pure. `planner` asks the model, `effects` asks Tyk and patches the route,
//! `contexts` asks where a context leads that no Gateway leads to, `places` decides which of them
//! an annotation may lead to. What a route
//! *means* is decided in `model`, how Tyk is spoken to in `sync`.

pub mod contexts;
pub mod effects;
pub mod entries;
pub mod intent;
pub mod ledger;
pub mod memory;
pub mod names;
pub mod places;
pub mod planner;

pub use effects::Drive;
pub use planner::{Known, RoutePlanner};
