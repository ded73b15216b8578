#!/usr/bin/env bash
# Judges Slackline and the peer's method on the same rows, and prints both side by side.
#
#   benches/predictor/run.sh ROWS            rows of `serve --record`, or the peer's own
#   benches/predictor/run.sh --simulate POOL [evaluate's other flags]
#
# SLACKLINE names the program (else it is built), PYTHON an interpreter with numpy and xgboost.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ $# -eq 0 ]]; then
    sed -n 's/^# \{0,1\}//; 2,7p' "${BASH_SOURCE[0]}"
    exit 2
fi
if [[ -z ${SLACKLINE:-} ]]; then
    cargo build --release --package cli
    SLACKLINE=target/release/slackline
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

rows=$1
more=()
if [[ $1 == --simulate ]]; then
    rows=$scratch/rows.jsonl
    more=(--record "$rows")
fi
"$SLACKLINE" evaluate "$@" "${more[@]}" --json "$scratch/ours.json"
echo
"${PYTHON:-python3}" benches/predictor/peer.py "$rows" --against "$scratch/ours.json"
