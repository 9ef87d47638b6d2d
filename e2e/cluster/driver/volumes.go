package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// volumes is the folder with a mount for each volume, which is named like the volume.
	volumes = "/var/lib/kubelet/plugins/" + name + "/volumes/"
	// limit is the largest size of a volume, in bytes.
	limit = 1 << 30
)

// capacity returns the size that a caller asks for at least; an error if no volume can have it.
func capacity(asked *csi.CapacityRange) (int64, error) {
	bytes := max(asked.GetRequiredBytes(), 1<<20)
	if bytes > limit {
		return 0, status.Errorf(codes.OutOfRange, "a volume has at most %d bytes", limit)
	}
	return bytes, nil
}

// isMounted tells a mount from a folder, since callers repeat calls that failed halfway.
func isMounted(path string) bool {
	var here, above syscall.Stat_t
	err := syscall.Stat(path, &here)
	return err == nil && syscall.Stat(filepath.Dir(path), &above) == nil && here.Dev != above.Dev
}

// mount makes a folder and mounts a source on it.
func mount(source, target, kind string, flags uintptr, options string) error {
	if isMounted(target) {
		return nil
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return syscall.Mount(source, target, kind, flags, options)
}

// unmount removes a mount and its folder.
func unmount(target string) error {
	if isMounted(target) {
		if err := syscall.Unmount(target, 0); err != nil {
			return err
		}
	}
	return remove(target)
}

// controller answers the provisioner, the resizer and the snapshotter.
type controller struct {
	csi.UnimplementedControllerServer
	node string
}

func (controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	call := func(kind csi.ControllerServiceCapability_RPC_Type) *csi.ControllerServiceCapability {
		return &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: kind}}}
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{
		call(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME),
		call(csi.ControllerServiceCapability_RPC_EXPAND_VOLUME),
		call(csi.ControllerServiceCapability_RPC_CLONE_VOLUME),
		call(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT),
	}}, nil
}

func (c controller) CreateVolume(_ context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	bytes, err := capacity(request.CapacityRange)
	if err != nil {
		return nil, err
	}
	here := []*csi.Topology{{Segments: map[string]string{topologyKey: c.node}}}
	volume := &csi.Volume{
		VolumeId: request.Name, CapacityBytes: bytes, AccessibleTopology: here, ContentSource: request.VolumeContentSource,
	}
	response := &csi.CreateVolumeResponse{Volume: volume}
	if asksForDevice(request.VolumeCapabilities) {
		volume.CapacityBytes = lengthOf(bytes)
		content, err := contentOf(request.VolumeContentSource)
		if err != nil {
			return nil, err
		}
		return response, makeDevice(request.Name, volume.CapacityBytes, content)
	}
	options := fmt.Sprintf("size=%d,mode=0755", bytes)
	if err := mount("tmpfs", volumes+request.Name, "tmpfs", 0, options); err != nil {
		return nil, err
	}
	if of := request.VolumeContentSource.GetVolume(); of != nil {
		return response, fill(volumes+request.Name, volumes+of.VolumeId)
	}
	if of := request.VolumeContentSource.GetSnapshot(); of != nil {
		return response, fill(volumes+request.Name, snapshots+of.SnapshotId+"/files")
	}
	return response, nil
}

// fill copies files into a new volume, as they are now. A call that is repeated begins anew.
func fill(target, source string) error {
	left, err := os.ReadDir(target)
	if err != nil {
		return err
	}
	for _, entry := range left {
		if err := os.RemoveAll(filepath.Join(target, entry.Name())); err != nil {
			return err
		}
	}
	if err := os.CopyFS(target, os.DirFS(source)); err != nil {
		return status.Errorf(codes.Internal, "cannot copy %s: %s", source, err)
	}
	return nil
}

func (controller) DeleteVolume(_ context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if isDevice(request.VolumeId) {
		return &csi.DeleteVolumeResponse{}, deleteDevice(request.VolumeId)
	}
	return &csi.DeleteVolumeResponse{}, unmount(volumes + request.VolumeId)
}

// ControllerExpandVolume leaves the work to the node, as a driver of block storage leaves it the file system; a device
// itself is all of the work.
func (controller) ControllerExpandVolume(_ context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	bytes, err := capacity(request.CapacityRange)
	if err == nil && isDevice(request.VolumeId) {
		bytes = lengthOf(bytes)
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes}, growDevice(request.VolumeId, bytes)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: bytes, NodeExpansionRequired: true}, err
}

// kubelets answers the kubelet of the node.
type kubelets struct {
	csi.UnimplementedNodeServer
	node string
}

func (k kubelets) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	here := &csi.Topology{Segments: map[string]string{topologyKey: k.node}}
	return &csi.NodeGetInfoResponse{NodeId: k.node, AccessibleTopology: here}, nil
}

func (kubelets) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	expands := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_EXPAND_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{
		{Type: &csi.NodeServiceCapability_Rpc{Rpc: expands}},
	}}, nil
}

func (kubelets) NodeExpandVolume(_ context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	bytes, err := capacity(request.CapacityRange)
	if err != nil {
		return nil, err
	}
	size := fmt.Sprintf("size=%d", bytes)
	err = syscall.Mount("tmpfs", volumes+request.VolumeId, "tmpfs", syscall.MS_REMOUNT, size)
	return &csi.NodeExpandVolumeResponse{CapacityBytes: bytes}, err
}

func (kubelets) NodePublishVolume(_ context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if isDevice(request.VolumeId) {
		return &csi.NodePublishVolumeResponse{}, publishDevice(request.VolumeId, request.TargetPath)
	}
	return &csi.NodePublishVolumeResponse{}, mount(volumes+request.VolumeId, request.TargetPath, "", syscall.MS_BIND, "")
}

func (kubelets) NodeUnpublishVolume(_ context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, unmount(request.TargetPath)
}
