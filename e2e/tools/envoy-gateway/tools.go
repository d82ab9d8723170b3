//go:build tools

// Package tools pins Envoy Gateway, a peer of the benchmarks.
package tools

import (
	_ "github.com/envoyproxy/gateway/cmd/envoy-gateway"
)
