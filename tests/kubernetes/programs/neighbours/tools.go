//go:build tools

// Names the programs that .ci/kubernetes builds, so that go.mod and go.sum hold what they need.
package tools

import (
	_ "github.com/bitnami-labs/sealed-secrets/cmd/controller"
	_ "github.com/bitnami-labs/sealed-secrets/cmd/kubeseal"
	_ "github.com/fluxcd/helm-controller"
	_ "github.com/fluxcd/kustomize-controller"
	_ "go.etcd.io/etcd/server/v3/etcdmain"
	_ "helm.sh/helm/v3/cmd/helm"
)
