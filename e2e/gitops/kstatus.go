package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	fluxstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

// verdict is what a tool makes of an object.
type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// judge reads objects as JSON, one after the other, and writes a tool's verdict on each on a line of its own.
func judge(by func(*unstructured.Unstructured) (verdict, error), in io.Reader, out io.Writer) error {
	objects, verdicts := json.NewDecoder(in), json.NewEncoder(out)
	for {
		object := &unstructured.Unstructured{}
		if err := objects.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		result, err := by(object)
		if err != nil {
			return err
		}
		if err := verdicts.Encode(result); err != nil {
			return err
		}
	}
}

// byKstatus judges an object by its conditions alone.
func byKstatus(object *unstructured.Unstructured) (verdict, error) {
	result, err := status.Compute(object)
	if err != nil {
		return verdict{}, err
	}
	return verdict{result.Status.String(), result.Message}, nil
}

// byExpressions returns a function that judges objects by the health check expressions of a Kustomization's spec, of
// which file has the part with healthCheckExprs for one kind.
func byExpressions(file string) (func(*unstructured.Unstructured) (verdict, error), error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var spec struct {
		Checks []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
	}
	if err := yaml.UnmarshalStrict(text, &spec); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(spec.Checks) != 1 {
		return nil, fmt.Errorf("%s has health checks for %d kinds and not for one", file, len(spec.Checks))
	}
	evaluator, err := cel.NewStatusEvaluator(&spec.Checks[0].HealthCheckExpressions)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return func(object *unstructured.Unstructured) (verdict, error) {
		result, err := evaluator.Evaluate(context.Background(), object)
		if err != nil {
			return verdict{}, err
		}
		return verdict{fluxstatus.Status(result.Status).String(), result.Message}, nil
	}, nil
}
