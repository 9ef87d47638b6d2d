package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

const (
	// devices is the folder with a file for each volume that is a device, which is named like the volume.
	devices = "/var/lib/kubelet/plugins/" + name + "/devices/"
	// diskGroup is the group that devices belong to on the nodes, which are Debian's.
	diskGroup = 6
	loopMajor = 7
	loops     = 64
)

// attaching has calls wait for each other, so that a volume gets one loop device.
var attaching sync.Mutex

// makeLoops adds loop devices to /dev, which is the node's: a container does not see those that the kernel makes later.
// The kubelet needs them, too, because it holds each device of a pod by a loop device of its own.
func makeLoops() error {
	for number := range loops {
		id := unix.Mkdev(loopMajor, uint32(number))
		if err := unix.Mknod(loop(number), unix.S_IFBLK|0o660, int(id)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("cannot make %s: %w", loop(number), err)
		}
	}
	return nil
}

func loop(number int) string { return fmt.Sprintf("/dev/loop%d", number) }

// isDevice tells volumes that are devices from those that are file systems.
func isDevice(volume string) bool {
	_, err := os.Stat(devices + volume)
	return err == nil
}

// asksForDevice tells whether the claim of a new volume has the mode Block.
func asksForDevice(capabilities []*csi.VolumeCapability) bool {
	for _, capability := range capabilities {
		if capability.GetBlock() != nil {
			return true
		}
	}
	return false
}

// lengthOf returns the length of a device that holds this many bytes, in whole sectors.
func lengthOf(bytes int64) int64 { return (bytes + 511) / 512 * 512 }

// makeDevice makes the file of a volume, with the content of another file unless that is "". A call that is repeated
// begins anew.
func makeDevice(volume string, length int64, content string) error {
	if err := os.MkdirAll(devices, 0o755); err != nil {
		return err
	}
	if content == "" {
		content = os.DevNull
	}
	if err := copyContent(devices+volume, content); err != nil {
		return err
	}
	return os.Truncate(devices+volume, length)
}

// contentOf returns the file with the content that a new device begins with; "" if it begins with zeros.
func contentOf(source *csi.VolumeContentSource) (string, error) {
	if of := source.GetVolume(); of != nil {
		return devices + of.VolumeId, flush(of.VolumeId)
	}
	if of := source.GetSnapshot(); of != nil {
		return imageOf(of.SnapshotId), nil
	}
	return "", nil
}

// growDevice makes a device longer, also while pods use it.
func growDevice(volume string, length int64) error {
	if err := os.Truncate(devices+volume, length); err != nil {
		return err
	}
	device, err := attached(volume)
	if device == nil || err != nil {
		return err
	}
	defer device.Close()
	return unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0)
}

// deleteDevice removes a volume with its loop device, which the kernel takes away as soon as no process has it open.
func deleteDevice(volume string) error {
	device, err := attached(volume)
	if err != nil {
		return err
	}
	if device != nil {
		defer device.Close()
		if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
			return err
		}
	}
	return os.Remove(devices + volume)
}

// publishDevice makes the file by which the kubelet gives a volume to a pod.
func publishDevice(volume, target string) error {
	device, err := attach(volume)
	if err != nil {
		return fmt.Errorf("cannot attach %s: %w", volume, err)
	}
	defer device.Close()
	var about unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &about); err != nil {
		return err
	}
	if err := remove(target); err != nil {
		return err
	}
	if err := unix.Mknod(target, unix.S_IFBLK, int(about.Rdev)); err != nil {
		return err
	}
	if err := os.Chown(target, 0, diskGroup); err != nil {
		return err
	}
	return os.Chmod(target, 0o660)
}

// attached opens the loop device of a volume; nil if it has none.
func attached(volume string) (*os.File, error) {
	var image unix.Stat_t
	if err := unix.Stat(devices+volume, &image); err != nil {
		return nil, err
	}
	used, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, of := range used {
		// Another process may just have detached it.
		device, err := os.Open("/dev/" + filepath.Base(filepath.Dir(of)))
		if err != nil {
			continue
		}
		found, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && found.Inode == image.Ino && found.Device == image.Dev {
			return device, nil
		}
		device.Close()
	}
	return nil, nil
}

// attach opens the loop device of a volume, which gets one if it has none, and keeps it. All pods have the same one: two
// would not see each other's writes.
func attach(volume string) (*os.File, error) {
	attaching.Lock()
	defer attaching.Unlock()
	if device, err := attached(volume); device != nil || err != nil {
		return device, err
	}
	image, err := os.OpenFile(devices+volume, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, err
		}
		device, err := os.OpenFile(loop(number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &unix.LoopConfig{Fd: uint32(image.Fd())})
		if err == nil {
			return device, nil
		}
		device.Close()
		// Another process has taken the free one first.
		if !errors.Is(err, unix.EBUSY) {
			return nil, err
		}
	}
}

// flush has what pods wrote to a volume be in its file.
func flush(volume string) error {
	device, err := attached(volume)
	if device == nil || err != nil {
		return err
	}
	defer device.Close()
	return device.Sync()
}

// copyContent copies a file. Zeros take no room in the copy.
func copyContent(target, source string) error {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(target)
	if err != nil {
		return err
	}
	defer to.Close()
	buffer, zeros := make([]byte, block), make([]byte, block)
	for at := int64(0); ; at += block {
		part, err := readAt(from, at, buffer)
		if err != nil {
			return err
		}
		if len(part) == 0 {
			return to.Truncate(at)
		}
		if bytes.Equal(part, zeros[:len(part)]) {
			err = to.Truncate(at + int64(len(part)))
		} else {
			_, err = to.WriteAt(part, at)
		}
		if err != nil || len(part) < block {
			return err
		}
	}
}

// readAt reads as much as fits, or as there is.
func readAt(from io.ReaderAt, at int64, buffer []byte) ([]byte, error) {
	length, err := from.ReadAt(buffer, at)
	if err == io.EOF {
		err = nil
	}
	return buffer[:length], err
}

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
