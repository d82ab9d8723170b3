//go:build tools

// Package tools pins what the harness builds from this module.
package tools

import _ "go.etcd.io/etcd/server/v3"
