# Sourced by `build` and `up`: the image that the cluster's nodes run. kind's own where it can be had; else one that is built
# here from Debian packages and the programs of programs.sh, and kept as a file in the cache.

# node_image: makes sure of a node image and prints its name.
node_image() {
  engine_up
  local own; own=kindest/node:$KUBERNETES-volferry-$(node_image_key)
  if ! lacks_sys_resource && has_image "$KIND_NODE_IMAGE" && has_image "$BUSYBOX"; then
    echo "$KIND_NODE_IMAGE"
  elif has_image "$own" || load_node_image "$own"; then
    echo "$own"
  elif ! lacks_sys_resource && pull_node_image; then
    echo "$KIND_NODE_IMAGE"
  else
    build_node_image "$own" >&2
    echo "$own"
  fi
}

# What the built image depends on: with another key, an image from before a change is not taken for this one.
node_image_key() { cat <(sed 's/ *#.*//' "$here/versions.env") "$here/node-image.sh" "$here/runc-drop-caps" | sha256sum | cut -c1-12; }

# A registry that is out of reach shows itself with the small image first. kind's image has the unchanged runc inside, so a
# host without CAP_SYS_RESOURCE cannot use it.
pull_node_image() {
  timeout 20 docker pull -q "$BUSYBOX" >/dev/null 2>&1 || return
  say "pulling $KIND_NODE_IMAGE"
  timeout 600 docker pull -q "$KIND_NODE_IMAGE" >/dev/null 2>&1
}

node_image_file() { echo "$cache/node-image-${1##*-}.tar.zst"; }

load_node_image() {
  local file; file=$(node_image_file "$1")
  [ -s "$file" ] || return
  need zstd zstd
  say "loading the node image from $file"
  zstd -dc "$file" | docker load >/dev/null 2>>"$log/docker" && has_image "$1"
}

# Written beside and renamed: a call that is cut off leaves no half file under the name. Files of other keys go.
save_node_image() {
  local file; file=$(node_image_file "$1")
  need zstd zstd
  say "keeping the node image in $file"
  docker save "$1" | zstd -q -T0 -3 -f -o "$file.part"
  find "$cache" -maxdepth 1 -name 'node-image-*.tar.zst' -delete
  mv "$file.part" "$file"
}

build_node_image() {
  local work=$cache/image
  mkdir -p "$work"
  need debootstrap debootstrap
  need gcc gcc libc6-dev
  tools
  apiserver
  kubernetes "${kubernetes_programs[@]}"
  coredns
  go_tool local-path-provisioner github.com/rancher/local-path-provisioner "$LOCAL_PATH"
  root_file_system "$work/rootfs"
  say "building the cluster's images"
  component_images "$work"
  say "assembling $1"
  base_image "$work/node" volferry/node-base
  preload volferry/node-base "$1"
  save_node_image "$1"
}

# root_file_system DIR: the node's, from Debian packages, in DIR and as the image volferry/node-rootfs.
root_file_system() {
  if [ "$(cat "$1.release" 2>/dev/null)" != "$DEBIAN" ]; then
    say "making the node's root file system from Debian packages (2 minutes)"
    rm -rf "$1" "$1.release"
    local packages=ca-certificates,systemd,systemd-sysv,conntrack,iptables,nftables,iproute2,ethtool,util-linux,mount,kmod
    packages+=,libseccomp2,pigz,bash,curl,jq,procps,containerd,runc,containernetworking-plugins,socat,busybox-static,nfs-common
    logged debootstrap debootstrap --variant=minbase --include="$packages" "$DEBIAN" "$1"
    echo "$DEBIAN" >"$1.release"
    docker rmi "volferry/node-rootfs:$DEBIAN" >/dev/null 2>&1 || true
  fi
  has_image "volferry/node-rootfs:$DEBIAN" ||
    tar -C "$1" -c . | docker import - "volferry/node-rootfs:$DEBIAN" >/dev/null
}

# The images that kubeadm and kind's manifests start pods from, and the tests' own.
component_images() {
  local program rootfs=$1/rootfs
  pause_image "$1"
  for program in kube-apiserver kube-controller-manager kube-scheduler; do
    program_image "registry.k8s.io/$program:$KUBERNETES" "$bin/$program" "/usr/local/bin/$program"
  done
  program_image "registry.k8s.io/etcd:$ETCD_TAG" "$bin/etcd" /usr/local/bin/etcd
  program_image "registry.k8s.io/coredns/coredns:$COREDNS" "$bin/coredns" /coredns
  program_image "docker.io/kindest/local-path-provisioner:$LOCAL_PATH_TAG" "$bin/local-path-provisioner" /usr/local/bin/local-path-provisioner
  proxy_image "$rootfs" "$1/proxy"
  busybox_image "$rootfs" "$1/busybox"
}

build_image() { DOCKER_BUILDKIT=0 logged docker docker build -q -t "$1" "$2"; }

# program_image TAG PROGRAM PATH: an image that holds one static program.
program_image() {
  local context; context=$(mktemp -d)
  cp "$2" "$context/program"
  printf 'FROM scratch\nENV PATH=/usr/local/bin:/usr/bin:/bin GOGC=400\nCOPY program %s\nENTRYPOINT ["%s"]\n' "$3" "$3" >"$context/Dockerfile"
  build_image "$1" "$context"
  rm -rf "$context"
}

# The process that holds a pod's namespaces: it waits, and reaps what is orphaned to it.
pause_image() {
  cat >"$1/pause.c" <<'C'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void down(int s) { (void)s; _exit(0); }
static void reap(int s) { (void)s; while (waitpid(-1, NULL, WNOHANG) > 0); }
int main(void) { signal(SIGINT, down); signal(SIGTERM, down); signal(SIGCHLD, reap); for (;;) pause(); }
C
  logged go gcc -Os -static -s -o "$1/pause" "$1/pause.c"
  program_image "registry.k8s.io/pause:$PAUSE_TAG" "$1/pause" /pause
}

# kube-proxy calls iptables and conntrack: both come, with the libraries that they link to, from the root file system.
proxy_image() {
  local from=$1 root=$2/root file name suffix
  rm -rf "$2"; mkdir -p "$root"/{bin,etc,usr/local/bin}; mkdir -m 1777 "$root/tmp"
  for file in /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi /usr/sbin/conntrack /usr/bin/busybox; do
    copy_with_libraries "$from" "$file" "$root"
  done
  for file in "$from"/usr/lib/*/xtables/*.so; do copy_with_libraries "$from" "${file#"$from"}" "$root"; done
  for name in iptables ip6tables; do
    for suffix in '' -save -restore; do ln -sf xtables-legacy-multi "$root/usr/sbin/$name$suffix"; done
  done
  busybox_links "$from" "$root/bin" /usr/bin/busybox
  cp "$bin/kube-proxy" "$root/usr/local/bin/"
  printf 'FROM scratch\nENV PATH=/usr/local/bin:/usr/bin:/bin:/sbin:/usr/sbin\nCOPY root/ /\n' >"$2/Dockerfile"
  build_image "registry.k8s.io/kube-proxy:$KUBERNETES" "$2"
}

copy_with_libraries() {
  local library
  mkdir -p "$3$(dirname "$2")"; cp -L "$1$2" "$3$2"
  for library in $(chroot "$1" ldd "$2" 2>/dev/null | grep -oE '/[^ ]+'); do
    mkdir -p "$3$(dirname "$library")"; cp -nL "$1$library" "$3$library"
  done
}

# A shell for the tests' pods and for the storage provisioner's helper.
busybox_image() {
  rm -rf "$2"; mkdir -p "$2/root/bin"; mkdir -m 1777 "$2/root/tmp"
  cp "$1/usr/bin/busybox" "$2/root/bin/"
  busybox_links "$1" "$2/root/bin" busybox
  printf 'FROM scratch\nENV PATH=/bin\nCOPY root/ /\n' >"$2/Dockerfile"
  build_image "$BUSYBOX" "$2"
  docker tag "$BUSYBOX" "docker.io/kindest/local-path-helper:$LOCAL_PATH_HELPER_TAG"
}

busybox_links() {
  local applet
  for applet in $("$1/usr/bin/busybox" --list); do [ "$applet" = busybox ] || ln -sf "$3" "$2/$applet"; done
}

# base_image CONTEXT TAG: the node without its images. kind needs only files that are in its own module, over systemd, containerd,
# runc and the CNI plugins. The changed runc and `restrict_oom_score_adj` let containerd work without CAP_SYS_RESOURCE and
# change nothing that the tests see where it is there, so one image serves both kinds of host. GOGC spares Kubernetes' programs, which
# are small here, most of their collecting of garbage.
base_image() {
  local source; source=$(go_ready && module_dir "sigs.k8s.io/kind@$KIND")
  rm -rf "$1"; mkdir -p "$1"/{bin,manifests}
  cp -r "$source/images/base/files" "$1/files"; chmod -R u+w "$1/files"
  cp "$bin"/{kubelet,kubeadm,kubectl} "$1/bin/"; cp "$here/runc-drop-caps" "$1/"
  storage_manifest "$source" >"$1/manifests/default-storage.yaml"
  node_dockerfile >"$1/Dockerfile"
  build_image "$2" "$1"
}

storage_manifest() {
  sed -n '/defaultStorageManifest = `/,/^`/p' "$1/pkg/build/nodeimage/const_storage.go" | sed '1d;$d' |
    sed -e 's#` + storageProvisionerImage + `#docker.io/kindest/local-path-provisioner:'"$LOCAL_PATH_TAG"'#' \
      -e 's#` + storageHelperImage + `#docker.io/kindest/local-path-helper:'"$LOCAL_PATH_HELPER_TAG"'#'
}

node_dockerfile() {
  cat <<DOCKER
FROM volferry/node-rootfs:$DEBIAN
COPY files/usr/local/bin/ /usr/local/bin/
COPY files/kind/ /kind/
COPY files/etc/ /etc/
COPY manifests/ /kind/manifests/
COPY bin/ /usr/bin/
COPY runc-drop-caps /usr/local/sbin/runc-drop-caps
RUN set -e; chmod 755 /usr/local/bin/* /usr/local/sbin/* /kind/bin/* /usr/bin/kube*; \\
  rm -f /lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service /lib/systemd/system/multi-user.target.wants/* \\
    /etc/systemd/system/*.wants/* /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/sockets.target.wants/*udev* \\
    /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/basic.target.wants/*; \\
  mkdir /etc/systemd/system.conf.d; printf '[Manager]\\nDefaultEnvironment=GOGC=400\\n' >/etc/systemd/system.conf.d/collect-less.conf; \\
  echo ReadKMsg=no >>/etc/systemd/journald.conf; ln -sf "\$(command -v systemd)" /sbin/init; \\
  systemctl enable kubelet.service containerd.service undo-mount-hacks.service; systemctl mask systemd-binfmt.service; \\
  mkdir -p /etc/kubernetes/manifests /opt/cni; ln -sfn /usr/lib/cni /opt/cni/bin; ln -sf /usr/bin/containerd /usr/local/bin/containerd; \\
  ctr oci spec | jq '.hooks.createContainer[.hooks.createContainer| length] |= . + {"path": "/kind/bin/mount-product-files.sh"} | del(.process.rlimits)' >/etc/containerd/cri-base.json; \\
  printf %s $KUBERNETES >/kind/version; \\
  sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' \\
    -e 's#SystemdCgroup = true#SystemdCgroup = true\\n    BinaryName = "/usr/local/sbin/runc-drop-caps"#' /etc/containerd/config.toml; \\
  grep -q 'restrict_oom_score_adj = true' /etc/containerd/config.toml; grep -q runc-drop-caps /etc/containerd/config.toml
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT [ "/usr/local/bin/entrypoint", "/sbin/init" ]
DOCKER
}

# preload BASE TAG: the node image: BASE with the component images in its containerd.
preload() {
  local builder=volferry-node-build
  docker rm -fv $builder >/dev/null 2>&1 || true
  docker run -d --privileged --name $builder --entrypoint sleep "$1" infinity >/dev/null
  docker exec -d $builder sh -c 'containerd >/tmp/containerd.log 2>&1'
  for _ in $(seq 60); do docker exec $builder ctr version >/dev/null 2>&1 && break; sleep 0.5; done
  docker save "registry.k8s.io/pause:$PAUSE_TAG" "registry.k8s.io/kube-"{apiserver,controller-manager,scheduler,proxy}":$KUBERNETES" \
    "registry.k8s.io/etcd:$ETCD_TAG" "registry.k8s.io/coredns/coredns:$COREDNS" "kindest/local-path-provisioner:$LOCAL_PATH_TAG" \
    "kindest/local-path-helper:$LOCAL_PATH_HELPER_TAG" "$BUSYBOX" |
    docker exec -i $builder ctr --namespace=k8s.io images import --all-platforms --no-unpack - >/dev/null
  docker exec $builder sh -c 'pkill -x containerd; while pgrep -x containerd >/dev/null; do sleep 0.1; done; rm -f /tmp/containerd.log'
  docker commit --change 'ENTRYPOINT [ "/usr/local/bin/entrypoint", "/sbin/init" ]' $builder "$2" >/dev/null
  docker rm -fv $builder >/dev/null
}
