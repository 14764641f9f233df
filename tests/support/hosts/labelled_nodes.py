"""Nodes with labels on one machine, by Ray's own cluster_utils: where replicas and ranks run.

`python -m tests.support.hosts.labelled_nodes FILE OUT` deploys a Serve file on a node labelled
`foredraft: verifier` and a larger one labelled `foredraft: drafter`; it writes the labels of the
nodes on which each class of actors is, and the tokens of a drafted and a plain text.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import ray
import yaml
from ray import serve
from ray._private import state
from ray.cluster_utils import Cluster

from deployments.serve.platform import deploy_file, is_starting, prepare_environment

CPUS = {"verifier": 2, "drafter": 4}
_CLASSES = ("ServeReplica:foredraft:", "Rank")
_START_S = 120.0


def main(file: str, out: str) -> None:
    """Deploy the file and write what came of it as JSON."""
    prepare_environment()
    cluster = Cluster()
    try:
        labels: dict[str, str] = {}
        for name, cpus in CPUS.items():
            node = cluster.add_node(num_cpus=cpus, labels={"foredraft": name})
            labels[node.node_id] = name
        ray.init(address=cluster.address, log_to_driver=False)
        values = yaml.safe_load(Path(file).read_text())
        _deploy(values)
        url = f"http://127.0.0.1:{values['applications'][0]['args']['ingress']['direct']['port']}"
        texts = [_tokens(url, enabled) for enabled in (True, False)]
        Path(out).write_text(json.dumps({"places": _places(labels), "texts": texts}))
    finally:
        ray.shutdown()
        cluster.shutdown()


def _deploy(values: dict[str, Any]) -> None:
    serve.start(proxy_location="Disabled")
    deploy_file(values)
    deadline = time.monotonic() + _START_S
    while is_starting("foredraft") and time.monotonic() < deadline:
        time.sleep(0.25)
    status = serve.status().applications["foredraft"]
    if status.status != "RUNNING":
        raise RuntimeError(f"the application does not run: {status}")


def _places(labels: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for actor in state.actors().values():
        name = actor["ActorClassName"]
        if actor["State"] == "ALIVE" and name.startswith(_CLASSES):
            found.setdefault(name, []).append(labels[actor["Address"]["NodeID"]])
    return found


def _tokens(url: str, enabled: bool) -> dict[str, Any]:
    body = {
        "prompt": "def area(width, height):\n",
        "max_tokens": 40,
        "temperature": 0.8,
        "seed": 1,
        "ignore_eos": True,
        "return_token_ids": True,
        "speculative": {"enabled": enabled},
    }
    request = urllib.request.Request(
        f"{url}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    report = found["metrics"]["speculative_decoding"]
    tokens: list[int] = found["choices"][0]["token_ids"]
    return {"tokens": tokens, "drafts": report["num_spec_steps"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
