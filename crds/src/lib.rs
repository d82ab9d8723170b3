//! API types of Routewright and the CRDs generated from them.
