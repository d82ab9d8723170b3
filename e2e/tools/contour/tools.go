//go:build tools

// Package tools pins what the harness builds from this module.
package tools

import _ "github.com/projectcontour/contour/cmd/contour"
