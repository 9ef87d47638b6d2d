package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// groups answers the snapshotter about snapshots of several volumes at one instant. Each snapshot of a group is named after the group and
// its volume.
type groups struct {
	csi.UnimplementedGroupControllerServer
}

func (groups) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	takes := &csi.GroupControllerServiceCapability_RPC{
		Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
	}
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{
		{Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: takes}},
	}}, nil
}

func (groups) CreateVolumeGroupSnapshot(ctx context.Context, request *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	of := map[string]string{}
	var names []string
	for _, volume := range request.SourceVolumeIds {
		snapshot := request.Name + "-" + volume
		of[snapshot] = volume
		names = append(names, snapshot)
	}
	if err := take(ctx, of, request.Parameters); err != nil {
		return nil, err
	}
	group, err := group(request.Name, names, request.Parameters)
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: group}, err
}

func (groups) GetVolumeGroupSnapshot(_ context.Context, request *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	group, err := group(request.GroupSnapshotId, request.SnapshotIds, nil)
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: group}, err
}

func (groups) DeleteVolumeGroupSnapshot(ctx context.Context, request *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	for _, snapshot := range request.SnapshotIds {
		if _, err := (controller{}).DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot}); err != nil {
			return nil, err
		}
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// group describes a group of snapshots.
func group(name string, members []string, parameters map[string]string) (*csi.VolumeGroupSnapshot, error) {
	group := &csi.VolumeGroupSnapshot{GroupSnapshotId: name, ReadyToUse: true}
	for _, member := range members {
		snapshot, err := taken(member, parameters)
		if err != nil {
			return nil, err
		}
		snapshot.GroupSnapshotId = name
		group.Snapshots = append(group.Snapshots, snapshot)
		group.CreationTime = snapshot.CreationTime
		group.ReadyToUse = group.ReadyToUse && snapshot.ReadyToUse
	}
	return group, nil
}
