//! A real cluster for the tests of Routewright: single node without Docker, scenarios, benchmarks.
