package main

import (
	"bytes"
	"io"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// block is the length of the blocks that are listed, in bytes.
	block = 64 << 10
	// atOnce is the number of blocks of a message, unless the caller wants fewer: short lists have several messages, too.
	atOnce = 4
)

// metadata answers the sidecar which blocks of snapshots of devices have content, and which differ.
type metadata struct {
	csi.UnimplementedSnapshotMetadataServer
}

func (metadata) GetMetadataAllocated(request *csi.GetMetadataAllocatedRequest, stream csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	list := list{of: request.SnapshotId, from: request.StartingOffset, atOnce: request.MaxResults}
	return list.send(zeros{}, func(capacity int64, blocks []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataAllocatedResponse{
			BlockMetadataType: csi.BlockMetadataType_FIXED_LENGTH, VolumeCapacityBytes: capacity, BlockMetadata: blocks,
		})
	})
}

func (metadata) GetMetadataDelta(request *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	if err := areOfOneVolume(request.BaseSnapshotId, request.TargetSnapshotId); err != nil {
		return err
	}
	base, err := open(request.BaseSnapshotId)
	if err != nil {
		return err
	}
	defer base.Close()
	list := list{of: request.TargetSnapshotId, from: request.StartingOffset, atOnce: request.MaxResults}
	return list.send(base, func(capacity int64, blocks []*csi.BlockMetadata) error {
		return stream.Send(&csi.GetMetadataDeltaResponse{
			BlockMetadataType: csi.BlockMetadataType_FIXED_LENGTH, VolumeCapacityBytes: capacity, BlockMetadata: blocks,
		})
	})
}

// areOfOneVolume refuses snapshots of which no list would make sense.
func areOfOneVolume(base, target string) error {
	before, err := taken(base, nil)
	if err != nil {
		return err
	}
	after, err := taken(target, nil)
	if err != nil {
		return err
	}
	if before.SourceVolumeId != after.SourceVolumeId {
		return status.Errorf(codes.InvalidArgument, "%s and %s are of two volumes", base, target)
	}
	return nil
}

// imageOf returns the file with the content of a snapshot of a device.
func imageOf(snapshot string) string { return snapshots + snapshot + "/image" }

func open(snapshot string) (*os.File, error) {
	image, err := os.Open(imageOf(snapshot))
	if err != nil {
		return nil, status.Errorf(codes.NotFound, "no snapshot %s of a device: %s", snapshot, err)
	}
	return image, nil
}

// zeros is the content of a device to which nothing was written.
type zeros struct{}

func (zeros) ReadAt(buffer []byte, _ int64) (int, error) {
	clear(buffer)
	return len(buffer), nil
}

// list is what a caller wants to know of a snapshot.
type list struct {
	of     string
	from   int64
	atOnce int32
}

// send sends the blocks that differ from a base, some at once; nothing if none does.
func (l list) send(base io.ReaderAt, message func(capacity int64, blocks []*csi.BlockMetadata) error) error {
	image, err := open(l.of)
	if err != nil {
		return err
	}
	defer image.Close()
	about, err := image.Stat()
	if err != nil {
		return err
	}
	capacity := about.Size()
	if l.from < 0 || l.from > capacity {
		return status.Errorf(codes.OutOfRange, "%s has no byte %d", l.of, l.from)
	}
	fault, err := os.ReadFile(snapshots + l.of + "/fault")
	if err != nil {
		return err
	}
	most := atOnce
	if l.atOnce > 0 {
		most = min(most, int(l.atOnce))
	}
	var blocks []*csi.BlockMetadata
	now, before := make([]byte, block), make([]byte, block)
	for at := l.from - l.from%block; at < capacity; at += block {
		here, err := readAt(image, at, now)
		if err != nil {
			return err
		}
		there, err := readAt(base, at, before[:len(here)])
		if err != nil {
			return err
		}
		if !bytes.Equal(here, there) {
			blocks = append(blocks, &csi.BlockMetadata{ByteOffset: at, SizeBytes: block})
		}
		if len(blocks) < most && at+block < capacity || len(blocks) == 0 {
			continue
		}
		if err := message(capacity, blocks); err != nil {
			return err
		}
		blocks = nil
		if string(fault) == "cut" {
			return status.Error(codes.Internal, "the list of blocks breaks off")
		}
	}
	return nil
}
