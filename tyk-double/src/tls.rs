//! TLS of the data plane: certificates of the store, by the name that the client asks for.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio_rustls::TlsAcceptor;

use crate::certificate::Store;

/// The certificates as they were at the last load, by name.
#[derive(Default)]
pub(crate) struct Served {
    by_name: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served(..)")
    }
}

impl Served {
    pub(crate) fn replace(&self, store: &Store) {
        let mut names = HashMap::new();
        for entry in store.entries.values() {
            let Some(certified) = &entry.served else { continue };
            let own = [entry.stored.subject.clone()];
            for name in entry.stored.names.iter().chain(&own) {
                names.insert(name.to_lowercase(), Arc::clone(certified));
            }
        }
        *self.by_name.write().unwrap_or_else(PoisonError::into_inner) = names;
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_lowercase();
        let names = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let wildcard = || Some(format!("*.{}", name.split_once('.')?.1));
        names
            .get(&name)
            .or_else(|| names.get(&wildcard()?))
            .map(Arc::clone)
    }
}

pub(crate) fn acceptor(served: Arc<Served>) -> io::Result<TlsAcceptor> {
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(served);
    Ok(TlsAcceptor::from(Arc::new(config)))
}
