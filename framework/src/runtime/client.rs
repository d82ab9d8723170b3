//! The clients of the process: kube's own retry is off (back-off is the hub's and the Policy layer's), requests are
//! counted, writes pass the guard.

use std::time::Duration;

use kube::{Client, Config, client::ClientBuilder};

use super::{metrics::Metrics, write_guard::WriteGuard};

/// A server that does not go on answering for so long is given up: without it a dead connection holds a request for the
/// whole time of its reconcile. Not for watches, which are quiet by nature; the hub notices when bookmarks stop coming.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// A server that does not go on reading for so long is given up.
const WRITE_LIMIT: Duration = Duration::from_secs(15);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Clients for watches and discovery, and for everything else. The lease has its own, see
/// [`super::leadership::lease_client`].
#[derive(Clone)]
pub struct Clients {
    /// For the hub and for presence.
    pub watch: Client,
    /// For reads and guarded writes.
    pub api: Client,
}

/// One client for both, e.g. of an API server inside a test.
impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self {
            watch: client.clone(),
            api: client,
        }
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Clients {
    /// Clients of one configuration.
    ///
    /// # Errors
    /// A configuration that gives no client.
    pub fn new(config: &Config, metrics: &Metrics, guard: &WriteGuard) -> Result<Self, kube::Error> {
        let mut config = config.clone();
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_LIMIT);
        config.write_timeout = Some(WRITE_LIMIT);
        config.read_timeout = None;
        let counted = metrics.api_layer();
        let watch = ClientBuilder::try_from(config.clone())?
            .with_layer(&counted)
            .with_layer(&guard.layer())
            .build();
        config.read_timeout = Some(READ_LIMIT);
        let api = ClientBuilder::try_from(config)?
            .with_layer(&counted)
            // outermost: what it refuses is no request
            .with_layer(&guard.layer())
            .build();
        Ok(Self { watch, api })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Api, api::PostParams};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::runtime::{Leadership, probes};

    #[tokio::test]
    async fn a_failing_request_is_asked_once_counted_once_and_a_refused_write_not_at_all() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let router = axum::Router::new().fallback(move || {
            count.fetch_add(1, Ordering::Relaxed);
            async { axum::http::StatusCode::SERVICE_UNAVAILABLE }
        });
        let stop = CancellationToken::new();
        let server = probes::serve("test", ([127, 0, 0, 1], 0).into(), router, stop)
            .await
            .unwrap();
        let config = Config::new(format!("http://{}", server.address).parse().unwrap());
        let (metrics, leadership) = (Metrics::new("op"), Leadership::fixed(true));
        let clients = Clients::new(&config, &metrics, &WriteGuard::new(leadership.clone())).unwrap();
        for client in [&clients.watch, &clients.api] {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), "ns");
            leadership.set(true);
            api.get("a").await.unwrap_err();
            api.create(&PostParams::default(), &ConfigMap::default())
                .await
                .unwrap_err();
            leadership.set(false);
            api.get("a").await.unwrap_err();
            api.create(&PostParams::default(), &ConfigMap::default())
                .await
                .unwrap_err();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 6);
        let text = metrics.encode();
        assert!(
            text.contains(r#"op_api_requests_total{verb="get",kind="configmaps",code="503"} 4"#),
            "{text}"
        );
        assert!(
            text.contains(r#"op_api_requests_total{verb="create",kind="configmaps",code="503"} 2"#),
            "{text}"
        );
    }
}
