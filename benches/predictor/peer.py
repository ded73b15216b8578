#!/usr/bin/env python3
"""The method of llm-d's latency predictor on recorded rows, forward in time: a baseline.

Our own words for what that project documents: gradient-boosted trees (XGBoost, 200 trees of depth 6,
learning rate 0.05) on its features and on raw milliseconds, trained on a store of 5 queue x 20 KV x 4
prefix buckets of 500 rows each, once for the mean and once for the p90. One model serves the whole pool.
Its gate of separate models with and without a queue is left out.

A row is predicted with what was known at its decision and stored when its latency was known, as
`slackline evaluate` does; models are trained anew after every 200 labels, once there are 100 of their
target.

    pip install numpy xgboost
    peer.py ROWS [--json FILE] [--against FILE]

ROWS are those of `slackline serve --record` or `evaluate --record`, or the predictor's own: JSON lines,
gzipped or not. `--against` names the JSON of `slackline evaluate` on the same rows.
"""

import argparse
import collections
import gzip
import json
import sys

import numpy as np
import xgboost as xgb

LEAST_LABELS, TRAIN_EVERY, PER_BUCKET = 100, 200, 500
QUANTILE = 0.9
SHAPE = {
    "max_depth": 6, "learning_rate": 0.05, "subsample": 0.8, "colsample_bytree": 0.8,
    "min_child_weight": 5, "gamma": 0.2, "alpha": 0.01, "lambda": 0.1,
    "tree_method": "hist", "seed": 42, "nthread": 1,
}
TREES = 200
OBJECTIVES = {
    "mean": {"objective": "reg:squarederror"},
    "p90": {"objective": "reg:quantileerror", "quantile_alpha": QUANTILE},
}
ROLES = {"": 0, "both": 0, "prefill": 1, "decode": 2}
TTFT_TYPES = ["q"] * 9 + ["c", "c"]
ITL_TYPES = ["q"] * 8 + ["c"]

Row = collections.namedtuple(
    "Row", "decided pool regime group prompt cached_share waiting running kv ahead role labels")


def regime_of(waiting_first_token, decoding):
    if waiting_first_token > 0:
        return "queued"
    return "loaded" if decoding > 0 else "idle"


def ours(row):
    features = row["features"]
    prompt = max(features["prompt_tokens"], 1.0)
    labels = {}
    for target in ("ttft", "itl"):
        ms = row.get(f"{target}_ms")
        if ms:
            labels[target] = (ms, row[f"{target}_known_at_ms"])
    return Row(
        decided=row["decided_at_ms"], pool=row["model"],
        regime=regime_of(features["ahead_requests"], features["decoding_requests"]),
        group="/".join((row["model"], row["accelerator"], row["role"])),
        prompt=prompt,
        cached_share=min(max(1.0 - features["uncached_tokens"] / prompt, 0.0), 1.0),
        waiting=features["waiting_requests"], running=features["running_requests"],
        kv=features["kv_utilization_ratio"], ahead=features["ahead_tokens"],
        role=ROLES.get(row["role"], 0), labels=labels)


def theirs(row, at):
    running, ahead = row["num_request_running"], row.get("prefill_tokens_in_flight", 0)
    waiting = row["num_request_waiting"]
    known = at + max(2 * running, 1)
    labels = {}
    for target, key in (("ttft", "actual_ttft_ms"), ("itl", "actual_tpot_ms")):
        if row.get(key, 0) > 0:
            labels[target] = (row[key], known)
    return Row(
        decided=at, pool="unknown", regime=regime_of(max(waiting, 1 if ahead > 0 else 0), running),
        group="unknown/unknown/both",
        prompt=row["input_token_length"], cached_share=row["prefix_cache_score"], waiting=waiting,
        running=running, kv=row["kv_cache_percentage"], ahead=ahead, role=0, labels=labels)


def read(path):
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    rows = []
    with (gzip.open if packed else open)(path, "rt", encoding="utf-8") as lines:
        for at, line in enumerate(line for line in lines if line.strip()):
            row = json.loads(line)
            if "schema" not in row:
                rows.append(theirs(row, at))
            elif row["end"] == "complete" and row["model"]:
                rows.append(ours(row))
    return rows


def features(row, target):
    queued = float(row.waiting > 0)
    shared = [queued, row.kv, row.prompt, row.waiting, row.running, row.ahead, 0.0]
    if target == "itl":
        return [*shared, 0.0, row.role]
    effective = (1.0 - row.cached_share) * row.prompt
    return [*shared, row.cached_share, effective, min(3, int(4 * row.cached_share)), row.role]


def bucket(row, target):
    queue = int(np.searchsorted([0, 2, 5, 10], row.waiting, side="left"))
    prefix = 0 if target == "itl" else min(3, int(4 * row.cached_share))
    return queue, min(19, int(20 * row.kv)), prefix


class Target:
    """Store and models of one latency of one pool."""

    def __init__(self, target):
        self.target = target
        self.types = ITL_TYPES if target == "itl" else TTFT_TYPES
        self.store = collections.defaultdict(lambda: collections.deque(maxlen=PER_BUCKET))
        self.labels, self.models, self.open = 0, None, []

    def matrix(self, x, y=None):
        return xgb.DMatrix(np.asarray(x, dtype=np.float32), y, feature_types=self.types,
                           enable_categorical=True)

    def flush(self, predicted):
        """Predicts the rows that were decided under the present models."""
        if self.models and self.open:
            matrix = self.matrix([x for _, x in self.open])
            said = {name: model.predict(matrix) for name, model in self.models.items()}
            for at, (index, _) in enumerate(self.open):
                predicted[index, self.target] = {name: float(v[at]) for name, v in said.items()}
        self.open = []

    def learn(self, row, x, ms):
        self.store[bucket(row, self.target)].append((x, ms))
        self.labels += 1

    def train(self, predicted):
        if self.labels < LEAST_LABELS:
            return
        self.flush(predicted)
        kept = [pair for rows in self.store.values() for pair in rows]
        matrix = self.matrix([x for x, _ in kept], np.asarray([ms for _, ms in kept]))
        self.models = {
            name: xgb.train({**SHAPE, **objective}, matrix, TREES)
            for name, objective in OBJECTIVES.items()
        }


def validate(rows):
    """What was predicted, by row and target, from labels known at the decision."""
    events = []
    for index, row in enumerate(rows):
        events.append((row.decided, 1, index, None))
        events += [(known, 0, index, target) for target, (_, known) in row.labels.items()]
    events.sort(key=lambda event: event[:3])
    models, predicted, decided, labels = {}, {}, set(), 0
    for _, _, index, target in events:
        row = rows[index]
        of = lambda name: models.setdefault((row.pool, name), Target(name))
        if target is None:
            decided.add(index)
            for name in row.labels:
                if of(name).models:
                    of(name).open.append((index, features(row, name)))
        elif index in decided:
            of(target).learn(row, features(row, target), row.labels[target][0])
            labels += 1
            if labels % TRAIN_EVERY == 0:
                for model in models.values():
                    model.train(predicted)
    for model in models.values():
        model.flush(predicted)
    return predicted


def figures(pairs):
    """The measures of `slackline evaluate`, of (observed, predicted) pairs."""
    observed = np.asarray([ms for ms, _ in pairs])
    mean = np.asarray([said["mean"] for _, said in pairs])
    high = np.asarray([said["p90"] for _, said in pairs])
    off = np.abs(mean / observed - 1)
    over = observed - high
    return {
        "n": len(pairs),
        "mape_ratio": float(off.mean()),
        "median_ape_ratio": float(np.median(off)),
        "bias_ratio": float(mean.sum() / observed.sum() - 1),
        "pinball_p90_ms": float(np.where(over > 0, QUANTILE * over, (QUANTILE - 1) * over).mean()),
        "coverage_ratio": {"p90": float((over <= 0).mean())},
        "mape_of_p90_objective_ratio": float(np.abs(high / observed - 1).mean()),
    }


def report(rows, predicted):
    groups = collections.defaultdict(list)
    for (index, target), said in predicted.items():
        row = rows[index]
        pair = (row.labels[target][0], said)
        for key in ((row.group, row.regime), (row.group, "all"), ("all", "all")):
            groups[(target, *key)].append(pair)
    order = {"ttft": 0, "itl": 1}
    told = []
    for key in sorted(groups, key=lambda key: (order[key[0]], key[1] == "all", key[1:])):
        told.append({"target": key[0], "class": key[1], "regime": key[2], **figures(groups[key])})
    return told


def around(rows, predicted, change_ms, windows):
    told = []
    for window in windows:
        lo, hi, target = window["from_s"], window["to_s"], window["target"]
        pairs = [
            (rows[index].labels[name][0], said) for (index, name), said in predicted.items()
            if name == target and lo <= (rows[index].decided - change_ms) / 1e3 < hi
        ]
        if pairs:
            told.append({"target": target, "from_s": lo, "to_s": hi, **figures(pairs)})
    return told


def percent(value):
    return "-" if value is None else f"{value * 100:.1f} %"


def show(table):
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.rjust(width) if at > 2 else cell.ljust(width)
                        for at, (cell, width) in enumerate(zip(row, widths))).rstrip())


def cells(of):
    return [str(of["n"]), percent(of["mape_ratio"]), percent(of["median_ape_ratio"]),
            f"{of['pinball_p90_ms']:.2f}", percent(of["coverage_ratio"]["p90"])]


def compare(told, other):
    """Both side by side, and how many times ours the peer's error is."""
    judged = {(f["target"], f["class"], f["regime"]): f
              for f in other["groups"] + other["totals"]}
    table = [["TARGET", "CLASS", "REGIME", "ROWS peer/ours", "MAPE peer", "ours", "ratio",
              "PINBALL P90 peer", "ours", "ratio", "COVERAGE P90 peer", "ours"]]
    for of in told:
        mine = judged.get((of["target"], of["class"], of["regime"]))
        if mine is None or not mine["mape_ratio"] or not mine["pinball_p90_ms"]:
            continue
        ratio = lambda key: f"{of[key] / mine[key]:.2f}"
        table.append([
            of["target"], of["class"], of["regime"], f"{of['n']}/{mine['n']}",
            percent(of["mape_ratio"]), percent(mine["mape_ratio"]), ratio("mape_ratio"),
            f"{of['pinball_p90_ms']:.2f}", f"{mine['pinball_p90_ms']:.2f}",
            ratio("pinball_p90_ms"),
            percent(of["coverage_ratio"]["p90"]), percent(mine["coverage_ratio"]["p90"])])
    show(table)


def compare_around(told, other):
    mine = {(w["target"], w["from_s"], w["to_s"]): w for w in other["around_change"]}
    table = [["TARGET", "FROM THE CHANGE", "", "COVERAGE P90 peer", "ours", "BIAS peer", "ours"]]
    for of in told:
        window = mine[of["target"], of["from_s"], of["to_s"]]
        table.append([
            of["target"], f"{of['from_s']:+.0f} s to {of['to_s']:+.0f} s", "",
            percent(of["coverage_ratio"]["p90"]), percent(window["coverage_p90_ratio"]),
            percent(of["bias_ratio"]), percent(window["bias_ratio"])])
    show(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--against", help="JSON of `slackline evaluate` on the same rows")
    args = parser.parse_args()
    rows = read(args.rows)
    predicted = validate(rows)
    if not predicted:
        sys.exit(f"peer.py: {args.rows}: too few rows to train on")
    told = report(rows, predicted)
    result = {"source": args.rows, "groups": told}
    table = [["TARGET", "CLASS", "REGIME", "ROWS", "MAPE", "MEDIAN APE", "PINBALL P90 ms",
              "COVERAGE P90", "MAPE OF P90 OBJECTIVE"]]
    for of in told:
        table.append([of["target"], of["class"], of["regime"], *cells(of),
                      percent(of["mape_of_p90_objective_ratio"])])
    show(table)
    if args.against:
        with open(args.against, encoding="utf-8") as file:
            other = json.load(file)
        print("\nPeer against ours; a ratio above 1 means that the peer is further off.")
        compare(told, other)
        if other.get("change_at_ms") is not None:
            result["around_change"] = around(
                rows, predicted, other["change_at_ms"], other["around_change"])
            print()
            compare_around(result["around_change"], other)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)


if __name__ == "__main__":
    main()
