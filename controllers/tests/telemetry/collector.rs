//! A collector: an OTLP/gRPC receiver that keeps what it gets. No assertion about the product, but that no attribute is
//! there twice.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value as Any},
    trace::v1::Span,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

/// What was received.
#[derive(Clone, Default)]
pub(crate) struct Collector(pub(crate) Arc<Mutex<Received>>);

#[derive(Default)]
pub(crate) struct Received {
    pub(crate) spans: Vec<Span>,
    /// Attributes of whoever sent.
    pub(crate) resource: BTreeMap<String, String>,
    /// Header `x-tenant` of the last request.
    pub(crate) tenant: Option<String>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut received = self.0.lock().unwrap();
        let tenant = request.metadata().get("x-tenant");
        received.tenant = tenant.map(|value| value.to_str().unwrap().to_owned());
        for batch in request.into_inner().resource_spans {
            received.resource = attributes(&batch.resource.unwrap_or_default().attributes);
            let spans = batch.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.spans.extend(spans);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Listens at this address until the runtime ends.
    pub(crate) fn listen(&self, address: SocketAddr) -> SocketAddr {
        self.listen_as(address, Server::builder())
    }

    pub(crate) fn listen_as(&self, address: SocketAddr, mut server: Server) -> SocketAddr {
        let incoming = TcpIncoming::bind(address).unwrap();
        let address = incoming.local_addr().unwrap();
        let service = TraceServiceServer::new(self.clone());
        tokio::spawn(server.add_service(service).serve_with_incoming(incoming));
        address
    }

    /// Listens at a place that was [`reserved`].
    pub(crate) fn listen_in(&self, place: TcpSocket) {
        let incoming = TcpIncoming::from(place.listen(64).unwrap());
        let service = TraceServiceServer::new(self.clone());
        tokio::spawn(
            Server::builder()
                .add_service(service)
                .serve_with_incoming(incoming),
        );
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().spans.clone()
    }

    /// Ends of reconciles.
    pub(crate) fn reconciles(&self) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| span.name == "reconcile");
        spans
    }
}

pub(crate) fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &KeyValue| match value.value.as_ref().and_then(|v| v.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let map: BTreeMap<String, String> = list
        .iter()
        .map(|value| (value.key.clone(), text(value)))
        .collect();
    assert_eq!(map.len(), list.len(), "an attribute is there twice: {list:?}");
    map
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An address at which nobody listens yet, and that nobody else can take.
pub(crate) fn reserved() -> (TcpSocket, SocketAddr) {
    let place = TcpSocket::new_v4().unwrap();
    place.bind(nowhere()).unwrap();
    let address = place.local_addr().unwrap();
    (place, address)
}

pub(crate) fn nowhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// All bytes that came in on the way to a collector, as they were sent.
#[derive(Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Vec<u8>>>);

impl Tap {
    /// Listens until the runtime ends, and passes everything on.
    pub(crate) async fn before(&self, collector: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind(nowhere()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let bytes = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let onward = TcpStream::connect(collector).await.unwrap();
                let ((mut theirs, mut back), (mut from, mut to)) = (stream.into_split(), onward.into_split());
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut back).await });
                let bytes = Arc::clone(&bytes);
                tokio::spawn(async move {
                    let mut chunk = [0_u8; 16 * 1024];
                    while let Ok(read @ 1..) = theirs.read(&mut chunk).await {
                        bytes.lock().unwrap().extend_from_slice(&chunk[..read]);
                        to.write_all(&chunk[..read]).await.unwrap();
                    }
                });
            }
        });
        address
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}
