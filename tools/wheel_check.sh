#!/usr/bin/env bash
# Build the wheel, install it in a clean venv outside the checkout, run from there.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
work=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

"$here/.venv/bin/python" -m build --wheel --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$here/.venv/bin/python" -m venv "$work/venv"
wheel=$(echo "$work"/dist/*.whl)
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check -c "$here/constraints.txt" "$wheel[server]"

cd "$work"
export HOME=$work/home XDG_CONFIG_HOME=$work/home/c XDG_STATE_HOME=$work/home/s PYTHONPATH=
mkdir -p "$HOME"
unzip -Z1 "$wheel" | cut -d/ -f1 | sort -u | grep -v dist-info | tr '\n' ' '
echo "are the packages of the wheel"
bin=$work/venv/bin
"$bin/specops" --help >/dev/null
# The agent: a host seen over the local transport.
# (1 is an answer too: other servers of this machine may be in trouble.)
"$bin/specops" status --json >status.json || [ $? -eq 1 ]
"$bin/python" -c '
import json
host = json.load(open("status.json"))["hosts"][0]
assert host["state"] == "ok" and host["cpu"]["memory_total_mib"] > 0, host
print("specops status, agent: ok")'
# The demo server, with the shipped weights.
port=$("$bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$bin/specops" serve --port "$port" >"$work/server.log" 2>&1 &
server=$!
"$bin/python" - "$port" <<'PY' || { tail -40 "$work/server.log"; exit 1; }
import json, sys, time, urllib.error, urllib.request
base = f"http://127.0.0.1:{sys.argv[1]}"
for _ in range(240):
    try:
        if urllib.request.urlopen(base + "/health", timeout=25).status == 200:
            break
    except (urllib.error.URLError, OSError):
        time.sleep(0.25)
else:
    sys.exit("demo server: not ready after 60 s")
body = json.dumps({"prompt": "What does NCCL_PROTO=LL do?", "max_tokens": 8}).encode()
call = urllib.request.Request(base + "/v1/completions", body, {"Content-Type": "application/json"})
print("demo server:", json.load(urllib.request.urlopen(call, timeout=60))["choices"][0]["text"][:60])
PY
echo "wheel-check: ok"
