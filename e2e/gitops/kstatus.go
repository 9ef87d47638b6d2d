package main

import (
	"encoding/json"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// verdict is what kstatus makes of an object.
type verdict struct {
	Status  status.Status `json:"status"`
	Message string        `json:"message"`
}

// judge reads objects as JSON, one after the other, and writes a verdict for each on a line of its own.
func judge(in io.Reader, out io.Writer) error {
	objects, verdicts := json.NewDecoder(in), json.NewEncoder(out)
	for {
		object := &unstructured.Unstructured{}
		if err := objects.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		if err := verdicts.Encode(verdict{result.Status, result.Message}); err != nil {
			return err
		}
	}
}
