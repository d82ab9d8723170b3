module routewright.dev/e2e/tools/prometheus-operator

go 1.26.0

// Its CRDs are read from the module's folder; nothing is built.
require github.com/prometheus-operator/prometheus-operator v0.85.0
