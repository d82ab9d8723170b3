//! A stand-in for Tyk, for tests only: the REST API of an open-source gateway and that of Tyk Dashboard, with faults to
//! inject, and a small data plane that executes Tyk OAS documents. A model of what was measured on a real gateway; what
//! it says is checked against one by the suite `gateway_contract`. Knows nothing of Kubernetes and nothing of Routewright.
