package main

import (
	"context"
	"fmt"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// tracking is the annotation by which Argo CD knows what is its own.
const tracking = "argocd.argoproj.io/tracking-id"

// argoed is a round trip with Argo CD's own library.
type argoed struct {
	*trip
	cache  cache.ClusterCache
	engine engine.GitOpsEngine
}

// argo syncs the first state, waits until the SyncJob is current, expects no difference, and does so with the second
// state; then it prunes.
func (t *trip) argo(ctx context.Context) error {
	known := cache.NewClusterCache(t.config,
		cache.SetNamespaces([]string{t.namespace}),
		cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (any, bool) {
			mark := object.GetAnnotations()[tracking]
			return mark, mark != ""
		}))
	it := argoed{trip: t, cache: known, engine: engine.NewEngine(t.config, known, engine.WithLogr(logr.Discard()))}
	stop, err := it.engine.Run()
	if err != nil {
		return err
	}
	defer stop()
	for name, state := range map[string][]*unstructured.Unstructured{"first": t.first, "second": t.second} {
		for _, object := range state {
			object.SetAnnotations(map[string]string{tracking: name})
		}
	}
	if err := it.brings(ctx, t.first); err != nil {
		return fmt.Errorf("the first state: %w", err)
	}
	if err := it.brings(ctx, t.second); err != nil {
		return fmt.Errorf("the second state: %w", err)
	}
	return it.prunes(ctx)
}

// isOwn tells what Argo CD manages.
func isOwn(resource *cache.Resource) bool {
	mark, _ := resource.Info.(string)
	return mark != ""
}

// brings syncs a state, waits for it, and expects that nothing differs: neither by the three-way comparison that is Argo
// CD's default, nor by server-side apply.
func (it argoed) brings(ctx context.Context, state []*unstructured.Unstructured) error {
	if err := it.syncs(ctx, state); err != nil {
		return err
	}
	if err := it.waits(ctx, state); err != nil {
		return err
	}
	for _, serverSide := range []bool{false, true} {
		if err := it.settles(ctx, state, serverSide); err != nil {
			return err
		}
	}
	step("synced")
	return nil
}

// settles waits until nothing differs. Argo CD hears of a status by its watch, and the operator may write one between
// that and the comparison.
func (it argoed) settles(ctx context.Context, state []*unstructured.Unstructured, serverSide bool) error {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	var differs string
	err := until(ctx, func() (bool, error) {
		var err error
		differs, err = it.differs(ctx, state, serverSide)
		return differs == "", err
	})
	if err != nil && differs != "" {
		return fmt.Errorf("out of sync (server-side diff: %t): %s", serverSide, differs)
	}
	return err
}

func (it argoed) syncs(ctx context.Context, state []*unstructured.Unstructured) error {
	results, err := it.engine.Sync(ctx, copies(state), isOwn, "1", it.namespace, sync.WithPrune(true), sync.WithLogr(logr.Discard()))
	if err != nil {
		return err
	}
	for _, result := range results {
		step("%s %s: %s", result.ResourceKey.Kind, result.ResourceKey.Name, result.Message)
		if result.Status == common.ResultCodeSyncFailed {
			return fmt.Errorf("cannot sync %s: %s", result.ResourceKey, result.Message)
		}
	}
	return nil
}

// waits until every SyncJob of a state is current.
func (it argoed) waits(ctx context.Context, state []*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(it.config)
	if err != nil {
		return err
	}
	for _, wanted := range state {
		if wanted.GetKind() != "SyncJob" {
			continue
		}
		kind := wanted.GroupVersionKind().GroupVersion().WithResource("syncjobs")
		err := until(ctx, func() (bool, error) {
			live, err := client.Resource(kind).Namespace(it.namespace).Get(ctx, wanted.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			result, err := status.Compute(live)
			if err != nil || result.Status != status.CurrentStatus {
				return false, err
			}
			return true, ranAsWanted(live)
		})
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", wanted.GetName(), err)
		}
	}
	return nil
}

// noCleanup follows each call of kubectl's code.
func noCleanup(string) (kube.CleanupFunc, error) { return func() {}, nil }

// differs compares a state with what is in the cluster, as Argo CD knows it. Returns what differs.
func (it argoed) differs(ctx context.Context, state []*unstructured.Unstructured, serverSide bool) (string, error) {
	live, err := it.cache.GetManagedLiveObjs(copies(state), isOwn)
	if err != nil {
		return "", err
	}
	pairs := sync.Reconcile(copies(state), live, it.namespace, it.cache)
	options := []diff.Option{diff.WithLogr(logr.Discard()), diff.WithGVKParser(it.cache.GetGVKParser())}
	if serverSide {
		applier, cleanup, err := kube.ManageServerSideDiffDryRuns(
			it.config, it.cache.GetOpenAPISchema(), tracing.NopTracer{}, logr.Discard(), noCleanup)
		if err != nil {
			return "", err
		}
		defer cleanup()
		options = append(options, diff.WithServerSideDiff(true), diff.WithManager("argocd-controller"),
			diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier)))
	}
	results, err := diff.DiffArray(pairs.Target, pairs.Live, options...)
	if err != nil {
		return "", err
	}
	for _, result := range results.Diffs {
		if result.Modified {
			return fmt.Sprintf("%s differs from %s", result.NormalizedLive, result.PredictedLive), nil
		}
	}
	return "", nil
}

// prunes syncs a state without any objects, and waits until what was there is gone.
func (it argoed) prunes(ctx context.Context) error {
	if err := it.syncs(ctx, nil); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		live, err := it.cache.GetManagedLiveObjs(nil, isOwn)
		return len(live) == 0, err
	})
}

// copies returns objects that a library may change.
func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, object := range objects {
		all = append(all, object.DeepCopy())
	}
	return all
}

// until asks again and again until the answer is yes or an error.
func until(ctx context.Context, holds func() (bool, error)) error {
	for {
		if done, err := holds(); err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
}
