//! A stand-in for Tyk, for tests only: the REST API of an open-source gateway and that of Tyk Dashboard, with faults to
//! inject, and a small data plane that executes Tyk OAS documents. A model of what was measured on a real gateway; what
//! it says is checked against one by the suite `gateway_contract`. Knows nothing of Kubernetes and nothing of Routewright.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use routewright_tyk_double::{Double, Fault};
//!
//! let tyk = Double::gateway().secret("a secret").start().await?;
//! tyk.inject(Fault::on("POST", "/tyk/apis/oas").times(2).status(503, "later"));
//! println!("{} serves {} APIs", tyk.url(), tyk.loaded().len());
//! # Ok(())
//! # }
//! ```

mod certificate;
mod dashboard;
mod document;
mod double;
mod fault;
mod fill;
mod front;
mod gateway;
mod handle;
mod multipart;
mod plane;
mod program;
mod proxy;
mod reply;
mod server;
mod shape;
mod state;
mod steps;
mod tls;
mod url;

pub use certificate::Stored;
pub use double::{Double, Mode, Running, Switches};
pub use fault::Fault;
pub use handle::{Asked, Counts, Handle};
pub use steps::{Pause, Side};
