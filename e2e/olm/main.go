// Command olm validates an OLM bundle as `operator-sdk bundle validate` does, without what needs a registry of images.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
)

// The validator takes each right on events.k8s.io for one on v1beta1, which is gone; the operator uses v1.
const mistaken = "Migrate the API(s) for events:"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: olm BUNDLE")
		os.Exit(2)
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	validators := validation.DefaultBundleValidators.WithValidators(
		validation.OperatorHubV2Validator,
		validation.StandardCapabilitiesValidator,
		validation.StandardCategoriesValidator,
		validation.ObjectValidator,
		validation.OperatorGroupValidator,
		validation.GoodPracticesValidator,
	)
	failed := false
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, problem := range append(result.Errors, result.Warnings...) {
			if !strings.Contains(problem.Error(), mistaken) {
				fmt.Fprintln(os.Stderr, problem.Error())
				failed = true
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}
