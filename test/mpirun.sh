#!/bin/sh
# mpirun.sh N PROGRAM ARGUMENTS...: starts N processes on this machine, with any
# number of cores, also as root. Exits with 77 (skipped) without mpirun.
if ! command -v mpirun >/dev/null; then
  echo "skipped: mpirun is not installed (openmpi-bin)"
  exit 77
fi
count=$1
shift
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
  OMPI_MCA_hwloc_base_binding_policy=none \
  exec mpirun -n "$count" "$@"
