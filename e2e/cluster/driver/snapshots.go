package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// snapshots is the folder with a folder for each snapshot, which is named like the snapshot: its `files`, or the `image`
	// of a device; in `of` the volume's name and size, and in `fault` what goes wrong with it.
	snapshots = "/var/lib/kubelet/plugins/" + name + "/snapshots/"
	// faultKey is the parameter of a class whose snapshots go wrong: `full` refuses to take them, `slow` has them never be ready, and
	// `cut` has lists of their blocks break off after the first message.
	faultKey = "fault"
)

func (controller) CreateSnapshot(ctx context.Context, request *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := take(ctx, map[string]string{request.Name: request.SourceVolumeId}, request.Parameters); err != nil {
		return nil, err
	}
	snapshot, err := taken(request.Name, request.Parameters)
	return &csi.CreateSnapshotResponse{Snapshot: snapshot}, err
}

func (controller) DeleteSnapshot(_ context.Context, request *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	return &csi.DeleteSnapshotResponse{}, os.RemoveAll(snapshots + request.SnapshotId)
}

// take copies volumes as they are at one instant: again, until nothing has changed meanwhile. The keys are the snapshots' names. What a
// call that was cut short has left is taken anew, all of it.
func take(ctx context.Context, of map[string]string, parameters map[string]string) error {
	if parameters[faultKey] == "full" {
		return status.Error(codes.ResourceExhausted, "the pool of snapshots is full")
	}
	if all(of) {
		return nil
	}
	for ctx.Err() == nil {
		before, err := state(of)
		if err != nil {
			return err
		}
		for snapshot, volume := range of {
			if err := replace(snapshots+"new-"+snapshot, volume, parameters[faultKey]); err != nil {
				return status.Errorf(codes.Internal, "cannot copy %s: %s", volume, err)
			}
		}
		if after, err := state(of); err != nil || after != before {
			continue
		}
		for snapshot := range of {
			if err := os.RemoveAll(snapshots + snapshot); err != nil {
				return err
			}
			if err := os.Rename(snapshots+"new-"+snapshot, snapshots+snapshot); err != nil {
				return err
			}
		}
		return nil
	}
	return ctx.Err()
}

// all tells whether all of these snapshots are there.
func all(of map[string]string) bool {
	for snapshot := range of {
		if _, err := os.Stat(snapshots + snapshot); err != nil {
			return false
		}
	}
	return true
}

// replace copies a volume into a folder, in the place of what an earlier call has left there.
func replace(folder, volume, fault string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	size, err := sizeOf(volume)
	if err != nil {
		return err
	}
	if err := os.WriteFile(folder+"/of", fmt.Appendln(nil, volume, size), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(folder+"/fault", []byte(fault), 0o644); err != nil {
		return err
	}
	if isDevice(volume) {
		return copyContent(folder+"/image", devices+volume)
	}
	return os.CopyFS(folder+"/files", os.DirFS(volumes+volume))
}

// sizeOf returns the size of a volume, in bytes.
func sizeOf(volume string) (int64, error) {
	if isDevice(volume) {
		about, err := os.Stat(devices + volume)
		if err != nil {
			return 0, err
		}
		return about.Size(), nil
	}
	var size syscall.Statfs_t
	err := syscall.Statfs(volumes+volume, &size)
	return int64(size.Blocks) * size.Bsize, err
}

// state describes what any change of a file of these volumes changes. What was written to a device is in its file then.
func state(of map[string]string) (string, error) {
	var all strings.Builder
	for _, volume := range of {
		root := volumes + volume
		if isDevice(volume) {
			root = devices + volume
			if err := flush(volume); err != nil {
				return "", err
			}
		}
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			var found syscall.Stat_t
			if err == nil {
				err = syscall.Lstat(path, &found)
			}
			fmt.Fprintln(&all, path, found.Ino, found.Size, found.Mtim, found.Ctim)
			return err
		})
		if err != nil {
			return "", status.Errorf(codes.Internal, "cannot read %s: %s", volume, err)
		}
	}
	// Maps have no order.
	lines := strings.Split(all.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// taken describes a snapshot.
func taken(snapshot string, parameters map[string]string) (*csi.Snapshot, error) {
	path := snapshots + snapshot + "/of"
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "no snapshot %s: %s", snapshot, err)
	}
	about, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	of := &csi.Snapshot{SnapshotId: snapshot, CreationTime: timestamppb.New(about.ModTime()), ReadyToUse: parameters[faultKey] != "slow"}
	_, err = fmt.Sscan(string(text), &of.SourceVolumeId, &of.SizeBytes)
	return of, err
}
