//go:build tools

// Package operators names what operators.py builds, for go.mod and go.sum: all with one version of Kubernetes' libraries.
package operators

import (
	_ "github.com/kubeflow/katib/cmd/db-manager/v1beta1"
	_ "github.com/kubeflow/katib/cmd/katib-controller/v1beta1"
	_ "github.com/kubeflow/katib/cmd/metricscollector/v1beta1/file-metricscollector"
	_ "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"
	_ "sigs.k8s.io/jobset"
)
