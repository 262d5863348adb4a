# Sourced by the tools: what they need installed, and how they build.
# shellcheck shell=bash
#
# Expects `set -u` and $tool, the name that messages begin with.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

packages="ca-certificates git cmake ninja-build ccache clang-22 lld-22
  clang-format-22 llvm-22-dev libmlir-22-dev mlir-22-tools llvm-22-tools
  libclang-rt-22-dev libonnx-dev libprotobuf-dev protobuf-compiler libdnnl-dev
  ocl-icd-opencl-dev libopenmpi-dev openmpi-bin libtomlplusplus-dev libcli11-dev
  nlohmann-json3-dev libgtest-dev libgmock-dev libbenchmark-dev python3-venv
  python3-numpy"

say() { echo "== $*"; }

# One line, then the end: die CODE MESSAGE...
die() {
  local code=$1
  shift
  echo "$tool: error: $*" >&2
  exit "$code"
}

# "123" -> "2 min 03 s"
duration() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

missing_packages() {
  local package
  for package in $packages; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null |
      grep -qx installed || echo "$package"
  done
}

# Installs what is missing with apt-get, as root or through sudo.
install_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die 2 "this is not Debian; install the equivalents of: $(echo $packages)"
  local missing
  missing=$(echo $(missing_packages))
  [ -z "$missing" ] && return
  local line="apt-get install --no-install-recommends $missing"
  local sudo=
  if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      sudo=sudo
    else
      die 2 "packages are missing and there is neither root nor sudo; run as root: $line"
    fi
  fi
  say "installing: $missing"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get update -q ||
    die 2 "apt-get update failed; see above"
  # $missing is a list.
  # shellcheck disable=SC2086
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
    --no-install-recommends $missing ||
    die 2 "could not install; Debian 12 with its security updates has all of: $line"
}

# Compiling against MLIR takes up to 2 GB a job.
jobs_count() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 2000000) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# build PRESET FOLDER TARGETS...: false where it fails.
build() {
  local preset=$1 folder=$2
  shift 2
  (cd "$root" && cmake --preset "$preset" >"$folder.configure.log" 2>&1) || {
    cat "$root/$folder.configure.log"
    return 1
  }
  mv "$root/$folder.configure.log" "$root/$folder/configure.log"
  ninja -C "$root/$folder" -j "${CLEAVE_JOBS:-$(jobs_count)}" "$@"
}
