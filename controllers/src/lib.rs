//! Routewright: website exposure for Garage buckets, and Gateway API on Tyk.
