//go:build tools

// Package tools pins what the harness builds from this module.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
