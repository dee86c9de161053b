#!/bin/bash
# Runs parts of the GPU suite on an offline machine: tests/gpu/device.sh OUT SECONDS:PART...
# Unpacks SGLang from .gpu/ (a packed site folder and pure wheels), runs the parts one after
# another (parts joined by "+" at once), each with its own limit, and leaves OUT/results.tar.gz.
set -u
out=$1
shift
site=/tmp/sglsite
results=/tmp/gpu-results
mkdir -p "$results"
if [ ! -d $site ]; then
  zstd=$(command -v zstd) || zstd=.gpu/zstd # with its libraries beside it
  LD_LIBRARY_PATH=.gpu $zstd -dc .gpu/sglsite.tar.zst | tar x -C /tmp
  for wheel in .gpu/*.whl; do python3 -m zipfile -e "$wheel" $site; done
fi
[ -d $site/sglang ] || { echo "the pack could not be unpacked"; exit 2; }
PYTHONPATH=$site:$(pwd)
export PYTHONWARNINGS=ignore PYTHONPATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1
code=0
for step in "$@"; do
  limit=${step%%:*}
  pids=
  for part in $(echo "${step#*:}" | tr + ' '); do
    timeout --signal=TERM --kill-after=10 "$limit" python3 -m tests.gpu "$part" --out $results \
      >"$results/$part.out" 2>&1 &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || code=1; done
  tar cz -C $results -f "$out/results.tar.gz" .
  echo "=== $step at $SECONDS s"
  tail -qn 60 $results/*.out | cut -c1-400
  rm -f $results/*.out
done
exit $code
