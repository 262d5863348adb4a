#!/bin/sh
# processes.sh N PROGRAM ARGUMENTS...: starts N processes as torchrun does, with
# the environment variables they need to find each other. Exits with the code of
# the first process that fails.
count=$1
shift
: "${MASTER_PORT:=$((20000 + $$ % 12000))}"
export WORLD_SIZE="$count" LOCAL_WORLD_SIZE="$count" MASTER_ADDR=127.0.0.1 MASTER_PORT
rank=0
started=
while [ "$rank" -lt "$count" ]; do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  started="$started $!"
  rank=$((rank + 1))
done
code=0
for process in $started; do
  wait "$process" || { ended=$?; [ "$code" != 0 ] || code=$ended; }
done
exit "$code"
