package main

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// owner is what Flux's kustomize-controller calls itself.
var owner = ssa.Owner{Field: "kustomize-controller", Group: "kustomize.toolkit.fluxcd.io"}

// fluxed is a round trip with Flux's own library.
type fluxed struct {
	*trip
	manager *ssa.ResourceManager
}

// flux applies the first state, waits, applies it again, changes to the second state, waits, and prunes.
func (t *trip) flux(ctx context.Context) error {
	manager, err := newManager(t)
	if err != nil {
		return err
	}
	it := fluxed{trip: t, manager: manager}
	if err := it.brings(ctx, t.first, "created"); err != nil {
		return fmt.Errorf("the first state: %w", err)
	}
	if err := it.brings(ctx, t.second, "configured"); err != nil {
		return fmt.Errorf("the second state: %w", err)
	}
	return it.prunes(ctx)
}

func newManager(t *trip) (*ssa.ResourceManager, error) {
	http, err := rest.HTTPClientFor(t.config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(t.config, http)
	if err != nil {
		return nil, err
	}
	kube, err := client.New(t.config, client.Options{Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return ssa.NewResourceManager(kube, polling.NewStatusPoller(kube, mapper, polling.Options{}), owner), nil
}

// brings applies a state, of which at least the SyncJob changes as it is to, waits for it by kstatus, and expects that
// nothing is left to do.
func (it fluxed) brings(ctx context.Context, state []*unstructured.Unstructured, change ssa.Action) error {
	it.manager.SetOwnerLabels(state, "backup", it.namespace)
	changes, err := it.manager.ApplyAll(ctx, state, ssa.DefaultApplyOptions())
	if err != nil {
		return err
	}
	step("applied: %s", listed(changes))
	for _, entry := range changes.Entries {
		if entry.ObjMetadata.GroupKind.Kind == "SyncJob" && entry.Action != change {
			return fmt.Errorf("the SyncJob is %s and not %s", entry.Action, change)
		}
	}
	options := ssa.WaitOptions{Interval: interval, Timeout: patience, FailFast: true}
	if err := it.manager.WaitForSetWithContext(ctx, object.UnstructuredSetToObjMetadataSet(state), options); err != nil {
		return err
	}
	step("all are current")
	if err := it.hasRun(ctx, state); err != nil {
		return err
	}
	again, err := it.manager.ApplyAll(ctx, state, ssa.DefaultApplyOptions())
	if err != nil {
		return err
	}
	step("applied again: %s", listed(again))
	for _, entry := range again.Entries {
		if entry.Action != ssa.UnchangedAction {
			return fmt.Errorf("a second apply finds drift: %s", entry)
		}
	}
	return nil
}

// hasRun checks that what is current by kstatus has run with the spec that was applied, and that nobody else has come
// to own a part of it.
func (it fluxed) hasRun(ctx context.Context, state []*unstructured.Unstructured) error {
	for _, wanted := range state {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(wanted.GroupVersionKind())
		if err := it.manager.Client().Get(ctx, client.ObjectKeyFromObject(wanted), live); err != nil {
			return err
		}
		if live.GetKind() == "SyncJob" {
			if err := ranAsWanted(live); err != nil {
				return err
			}
		}
		for _, entry := range live.GetManagedFields() {
			if entry.Manager != owner.Field && entry.Subresource != "status" {
				return fmt.Errorf("%s owns a part of %s besides its status: %s", entry.Manager, live.GetName(), entry.FieldsV1)
			}
		}
	}
	return nil
}

// ranAsWanted checks that a SyncJob's last run has the trigger of its spec.
func ranAsWanted(live *unstructured.Unstructured) error {
	wanted, _, _ := unstructured.NestedString(live.Object, "spec", "trigger")
	ran, _, _ := unstructured.NestedString(live.Object, "status", "lastTrigger")
	if ran != wanted {
		return fmt.Errorf("the SyncJob %s is current, and has run with the trigger %q and not %q", live.GetName(), ran, wanted)
	}
	return nil
}

// prunes deletes what Flux has applied, and waits until it is gone.
func (it fluxed) prunes(ctx context.Context) error {
	options := ssa.DefaultDeleteOptions()
	options.Inclusions = it.manager.GetOwnerLabels("backup", it.namespace)
	deleted, err := it.manager.DeleteAll(ctx, it.second, options)
	if err != nil {
		return err
	}
	step("pruned: %s", listed(deleted))
	for _, entry := range deleted.Entries {
		if entry.Action != ssa.DeletedAction {
			return fmt.Errorf("not pruned: %s", entry)
		}
	}
	return it.manager.WaitForSetTermination(deleted, ssa.WaitOptions{Interval: interval, Timeout: patience})
}

func listed(changes *ssa.ChangeSet) string {
	var all []string
	for _, entry := range changes.Entries {
		all = append(all, entry.String())
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}
