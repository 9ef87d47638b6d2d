// Serves volumes to Kubernetes for tests. Each is a file system in the memory of one node: it has a real limit, and growing it needs
// neither a device nor CAP_SYS_RESOURCE, which a test host may withhold. A restart of the node loses all of them. A volume of the mode
// Block is a file of the node, behind a loop device.
package main

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	name = "memory.test.volferry.dev"
	// topologyKey is the label of nodes that keeps a volume's pods on its node.
	topologyKey = name + "/node"
	// socket is the driver's address on the node; registrar is one in the folder that the kubelet watches for plugins.
	socket    = "/var/lib/kubelet/plugins/" + name + "/csi.sock"
	registrar = "/var/lib/kubelet/plugins_registry/" + name + "-reg.sock"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	node := os.Getenv("NODE_NAME")
	if node == "" {
		return fmt.Errorf("NODE_NAME is not set")
	}
	if err := makeLoops(); err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(logged), grpc.StreamInterceptor(loggedStream))
	csi.RegisterIdentityServer(server, identity{})
	csi.RegisterControllerServer(server, controller{node: node})
	csi.RegisterGroupControllerServer(server, groups{})
	csi.RegisterSnapshotMetadataServer(server, metadata{})
	csi.RegisterNodeServer(server, kubelets{node: node})
	ended := make(chan error)
	registration.RegisterRegistrationServer(server, registered{ended: ended})
	for _, path := range []string{socket, registrar} {
		listener, err := listen(path)
		if err != nil {
			return err
		}
		go func() { ended <- server.Serve(listener) }()
	}
	return <-ended
}

// listen makes a socket in the place of the socket that an earlier process left.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// logged prints each call and its answer, for the pod's log; probes are left out.
func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	answer, err := next(ctx, request)
	if _, isProbe := request.(*csi.ProbeRequest); !isProbe {
		fmt.Printf("%s %v: %v %v\n", info.FullMethod, request, answer, err)
	}
	return answer, err
}

// loggedStream prints each call whose answer is a stream, and its end.
func loggedStream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	err := next(server, stream)
	fmt.Printf("%s: %v\n", info.FullMethod, err)
	return err
}

// registered tells the kubelet, which finds the registrar's socket by itself, where the driver listens.
type registered struct {
	registration.UnimplementedRegistrationServer
	ended chan<- error
}

func (registered) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: name, Endpoint: socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r registered) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		r.ended <- fmt.Errorf("the kubelet refuses the driver: %s", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: kind}}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
	}}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}
