# Sourced by `build` and `up`: the programs, each built from the Go module proxy into the cache's bin folder.
# What is there already in the wanted version is left alone.

# go_ready: a Go that is new enough. One from 1.21 on fetches a newer toolchain by itself when GOTOOLCHAIN allows;
# where there is none, or only Debian's older one, that one fetches the toolchain, which is a module like any other.
go_ready() {
  export CGO_ENABLED=0 GOFLAGS=-buildvcs=false
  at_least "$(go_version)" "$GO_AT_LEAST" && return
  local toolchain=$cache/go/$GO
  [ -x "$toolchain/bin/go" ] || fetch_go "$toolchain"
  export PATH=$toolchain/bin:$PATH GOTOOLCHAIN=local
  unset GOROOT
  at_least "$(go_version)" "$GO_AT_LEAST" || die "Go $GO_AT_LEAST or newer is needed: install it from https://go.dev/dl"
}

go_version() { go env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9.]*\).*/\1/p'; }
at_least() { [ -n "$1" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

fetch_go() {
  need go golang-go
  say "fetching Go $GO"
  local arch; arch=$(go env GOARCH)
  local module=golang.org/toolchain@v0.0.1-go$GO.linux-$arch
  logged go env GOTOOLCHAIN=local go mod download "$module"
  local fetched; fetched=$(go env GOMODCACHE)/$module
  rm -rf "$1" "$1.new"
  mkdir -p "$(dirname "$1")"
  # A module's files are read-only and not executable.
  cp -r "$fetched" "$1.new"
  chmod -R u+w "$1.new"
  find "$1.new/bin" "$1.new/pkg/tool" -type f -exec chmod 755 {} +
  mv "$1.new" "$1"
}

# built NAME MODULE VERSION: whether bin/NAME is there and made of that version, as Go records it in the program.
built() { [ -x "$bin/$1" ] && grep -qaF "$(printf '%s\t%s' "$2" "$3")" "$bin/$1"; }

# go_tool NAME MODULE VERSION [SUBPACKAGE]: a program whose module has no replace directives.
go_tool() {
  built "$1" "$2" "$3" && return
  go_ready
  say "building $1 $3"
  logged go env GOBIN="$bin" go install -trimpath -ldflags '-s -w' "$2${4:-}@$3"
}

# kubernetes PROGRAM...: Kubernetes' own go.mod replaces its library modules by folders that its module archive leaves
# out; a module of ours that replaces them by their published versions builds the same programs.
kubernetes() {
  local program missing=()
  for program in "$@"; do built "$program" k8s.io/kubernetes "$KUBERNETES" || missing+=("$program"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  go_ready
  say "building ${missing[*]} $KUBERNETES (minutes: 8 for all of Kubernetes on 2 cores)"
  kubernetes_module
  local minor=${KUBERNETES#v1.}
  (cd "$cache/kubernetes" && logged go go build -trimpath -o "$bin/" -ldflags "-s -w
      -X k8s.io/component-base/version.gitVersion=$KUBERNETES -X k8s.io/component-base/version.gitMajor=1
      -X k8s.io/component-base/version.gitMinor=${minor%%.*} -X k8s.io/client-go/pkg/version.gitVersion=$KUBERNETES" \
      "${missing[@]/#/k8s.io/kubernetes/cmd/}")
}

# The module that requires every Kubernetes program, whichever are to be built, so that it is tidied once a version.
kubernetes_module() {
  local dir=$cache/kubernetes source program
  grep -qsF "k8s.io/kubernetes $KUBERNETES" "$dir/go.mod" && [ -s "$dir/go.sum" ] && return
  rm -rf "$dir"; mkdir -p "$dir"
  source=$(module_dir "k8s.io/kubernetes@$KUBERNETES")
  {
    printf 'module cluster\n\ngo %s\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "$GO_AT_LEAST" "$KUBERNETES"
    sed -n '/^replace (/,/^)/p' "$source/go.mod" | grep -oE '^\s*k8s.io/[a-z0-9-]+' |
      awk -v version="$STAGING" '{print "\t"$1" => "$1" "version}'
    echo ')'
  } >"$dir/go.mod"
  {
    printf '//go:build tools\n\npackage tools\n\nimport (\n'
    for program in "${kubernetes_programs[@]}"; do printf '\t_ "k8s.io/kubernetes/cmd/%s"\n' "$program"; done
    echo ')'
  } >"$dir/tools.go"
  (cd "$dir" && logged go go mod tidy -e)
}
kubernetes_programs=(kubectl kubeadm kubelet kube-proxy kube-scheduler kube-apiserver kube-controller-manager)

# etcd cannot be installed by its path either; three lines that call its main function can.
etcd() {
  with_main etcd go.etcd.io/etcd/server/v3 "$ETCD" '"os"; "go.etcd.io/etcd/server/v3/etcdmain"' 'etcdmain.Main(os.Args)'
}

# CoreDNS with the plugins that kubeadm's Corefile names: 759 packages to compile, and 1,277 with those for clouds and databases.
coredns() {
  local module=github.com/coredns/coredns imports plugin
  imports="\"$module/coremain\""
  for plugin in errors health ready kubernetes metrics forward cache loop reload loadbalance; do
    imports+="; _ \"$module/plugin/$plugin\""
  done
  with_main coredns "$module" "$COREDNS" "$imports" 'coremain.Run()'
}

# with_main NAME MODULE VERSION IMPORTS CALL: a program of that module whose main function is ours.
with_main() {
  built "$1" "$2" "$3" && return
  go_ready
  say "building $1 $3"
  local dir=$cache/$1
  rm -rf "$dir"; mkdir -p "$dir"
  printf 'module %s\n\ngo %s\n\nrequire %s %s\n' "$1" "$GO_AT_LEAST" "$2" "$3" >"$dir/go.mod"
  printf 'package main\n\nimport (%s)\n\nfunc main() { %s }\n' "$4" "$5" >"$dir/main.go"
  (cd "$dir" && logged go go mod tidy && logged go go build -trimpath -ldflags '-s -w' -o "$bin/$1" .)
}

# module_dir MODULE@VERSION: the folder of a downloaded module.
module_dir() { (cd "$cache" && go mod download -json "$1") | sed -n 's/.*"Dir": "\(.*\)",*/\1/p'; }

# What somebody at a terminal needs of a cluster.
tools() {
  go_tool kind sigs.k8s.io/kind "$KIND"
  go_tool helm helm.sh/helm/v3 "$HELM" /cmd/helm
  kubernetes kubectl
}

# What judges and installs the plugin's manifest. Not by `go install`, which asks for the list of versions: not every proxy has that of krew.
krew() {
  copied krew sigs.k8s.io/krew "$KREW" ./cmd/krew
  copied validate-krew-manifest sigs.k8s.io/krew "$KREW" ./cmd/validate-krew-manifest
}

# own NAME SOURCE: a program whose source is here, built again when that has changed.
own() {
  local key
  key=$(cat "$2"/*.go "$2"/go.{mod,sum} | sha256sum)
  [ -x "$bin/$1" ] && [ "$(cat "$cache/$1.key" 2>/dev/null)" = "$key" ] && return
  go_ready
  say "building $1"
  (cd "$2" && logged go go build -trimpath -ldflags '-s -w' -o "$bin/$1" .)
  printf '%s\n' "$key" >"$cache/$1.key"
}

# The libraries of GitOps tools, in a program of ours: from nothing 150 s of processor time.
gitops() { own gitops "$here/../gitops"; }

# The validator of OLM bundles, in a program of ours: from nothing 100 s of processor time.
olm() { own olm "$here/../olm"; }

# What serves the tests that need an API server and no kubelet.
apiserver() { kubernetes kube-apiserver kube-controller-manager; etcd; gitops; }

# The controllers of Flux and Argo CD: from nothing about 20 minutes of processor time.
gitops_controllers() {
  gitops
  go_tool kustomize sigs.k8s.io/kustomize/kustomize/v5 "$KUSTOMIZE"
  flux source-controller "$SOURCE_CONTROLLER"
  flux kustomize-controller "$KUSTOMIZE_CONTROLLER"
  copied argocd github.com/argoproj/argo-cd/v3 "$ARGO_CD" ./cmd manifests/crds manifests/base/config
}

# A storage whose volumes grow and are snapshotted, alone and in groups, and that lists changed blocks: the driver is ours, its sidecars and
# the snapshot controller are those of Kubernetes.
csi() {
  local snapshotter=github.com/kubernetes-csi/external-snapshotter metadata=github.com/kubernetes-csi/external-snapshot-metadata
  own memory-driver "$here/driver"
  copied csi-provisioner github.com/kubernetes-csi/external-provisioner/v6 "$EXTERNAL_PROVISIONER" ./cmd/csi-provisioner
  go_tool csi-resizer github.com/kubernetes-csi/external-resizer/v2 "$EXTERNAL_RESIZER" /cmd/csi-resizer
  # Their go.mod files take the types of their objects from folders that the module archives leave out; they are modules of their own.
  copied csi-snapshot-metadata "$metadata" "$EXTERNAL_SNAPSHOT_METADATA" ./cmd/csi-snapshot-metadata \
    -replace "$metadata/client=$metadata/client@$EXTERNAL_SNAPSHOT_METADATA"
  local program client=$snapshotter/client/v8
  for program in csi-snapshotter snapshot-controller; do
    copied "$program" "$snapshotter/v8" "$EXTERNAL_SNAPSHOTTER" "./cmd/$program" -replace "$client=$client@$EXTERNAL_SNAPSHOTTER"
  done
}

# flux NAME VERSION: a controller of Flux. The types of its objects are a module of their own, which its go.mod takes from a folder that
# the module archive leaves out.
flux() {
  local module=github.com/fluxcd/$1
  copied "$1" "$module" "$2" . config/crd/bases -replace "$module/api=$module/api@$2"
}

# copied NAME MODULE VERSION PACKAGE MANIFESTS... [-replace OLD=NEW]: a program that `go install` refuses, such as one whose module has
# replace directives: a copy of the module is the main module instead. Its manifests are kept in the cache's folder copied/NAME.
copied() {
  local name=$1 module=$2@$3 package=$4 manifests=$cache/copied/$1 source dir
  shift 4
  [ -x "$bin/$name" ] && [ "$(cat "$manifests/version" 2>/dev/null)" = "$module" ] && return
  go_ready
  say "building $module"
  source=$(module_dir "$module")
  dir=$(mktemp -d "$cache/$name.XXXXXX")
  cp -r "$source/." "$dir"
  chmod -R u+w "$dir"
  rm -rf "$manifests"; mkdir -p "$manifests"
  while [ $# -gt 0 ] && [ "$1" != -replace ]; do cp -r "$dir/$1" "$manifests/"; shift; done
  [ $# = 0 ] || (cd "$dir" && go mod edit "$@")
  # What a replacement adds to go.sum is verified like any module.
  (cd "$dir" && logged go go build -mod=mod -trimpath -ldflags '-s -w' -o "$bin/$name" "$package")
  rm -rf "$dir"
  echo "$module" >"$manifests/version"
}
