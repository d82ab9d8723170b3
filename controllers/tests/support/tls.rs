//! TLS for servers of tests: a certificate for loopback that nobody vouches for but itself. What is served, and what
//! comes of it, is the tests'.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// Accepts TLS as `127.0.0.1`; and the certificate in PEM, for whoever is to trust it.
pub(crate) fn self_signed() -> (TlsAcceptor, String) {
    let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), signed.cert.pem())
}
