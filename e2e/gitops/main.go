// Judges and drives SyncJobs with the libraries of GitOps tools, so that tests need not guess what these do.
//
//	gitops kstatus                        reads objects as JSON, and prints what kstatus makes of each
//	gitops expressions FILE               does the same by Flux's health check expressions in FILE
//	gitops flux KUBECONFIG NAMESPACE DIR  takes the files of DIR into the namespace and out again, as Flux does
//	gitops argo KUBECONFIG NAMESPACE DIR  does the same as Argo CD does
//	gitops git ADDRESS DIR                serves the git repositories of DIR over HTTP
//	gitops redis ADDRESS                  serves as the cache of Argo CD's controllers
//
// For flux and argo, DIR holds two states of a repository, `first` and `second`: folders of YAML files.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds a whole round trip. Runs are played by the test and take seconds.
const patience = 5 * time.Minute

// settling bounds the time for which a state that has arrived may differ.
const settling = time.Minute

// interval is the time between two looks at an object.
const interval = 100 * time.Millisecond

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "kstatus":
		return judge(byKstatus, os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "expressions":
		byThem, err := byExpressions(args[1])
		if err != nil {
			return err
		}
		return judge(byThem, os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "redis":
		return serveRedis(args[1])
	case len(args) == 3 && args[0] == "git":
		return serveGit(args[1], args[2])
	case len(args) == 4 && args[0] == "flux":
		return travel((*trip).flux, args[1:])
	case len(args) == 4 && args[0] == "argo":
		return travel((*trip).argo, args[1:])
	default:
		return errors.New("usage: gitops kstatus | gitops expressions FILE | gitops (flux | argo) KUBECONFIG NAMESPACE DIR | " +
			"gitops git ADDRESS DIR | gitops redis ADDRESS")
	}
}

// travel makes a round trip with a tool, to the namespace and with the files that args name.
func travel(tool func(*trip, context.Context) error, args []string) error {
	trip, err := newTrip(args[0], args[1], args[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return tool(trip, ctx)
}

// trip is where a round trip goes: a namespace of a cluster, and the two states of the repository.
type trip struct {
	config        *rest.Config
	namespace     string
	first, second []*unstructured.Unstructured
}

func newTrip(kubeconfig, namespace, dir string) (*trip, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	// Client-side limits are not what is tested.
	config.QPS, config.Burst = -1, -1
	first, err := read(filepath.Join(dir, "first"), namespace)
	if err != nil {
		return nil, err
	}
	second, err := read(filepath.Join(dir, "second"), namespace)
	if err != nil {
		return nil, err
	}
	return &trip{config: config, namespace: namespace, first: first, second: second}, nil
}

// read returns the objects of a folder's YAML files, in the namespace.
func read(dir, namespace string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		objects, err := utils.ReadObjects(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, objects...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no objects in %s", dir)
	}
	for _, object := range all {
		object.SetNamespace(namespace)
	}
	return all, nil
}

// step tells how far a round trip is.
func step(format string, args ...any) {
	fmt.Printf(format+"\n", args...)
}
