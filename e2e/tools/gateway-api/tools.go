//go:build tools

// Package tools pins Gateway API: its CRDs are read from the module's folder, its echo server is built from it.
package tools

import (
	_ "sigs.k8s.io/gateway-api/conformance"
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
