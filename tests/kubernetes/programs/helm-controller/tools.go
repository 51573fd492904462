//go:build tools

// Names the programs that .ci/kubernetes builds, so that go.mod and go.sum hold what they need.
package tools

import (
	_ "github.com/fluxcd/helm-controller"
)
