"""Nodes of Ray on hosts of their own, and Serve's command beside the head."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deployments.config import ROOT
from deployments.serve.environment import ENVIRONMENT
from tests.support.hosts.host import Host

_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_SERVE = (sys.executable, "-m", "ray.serve.scripts")
_START_S = 120.0
_APPLICATIONS = "/api/serve/applications/"


class RayNodes:
    """A cluster with Ray's token; each node has labels, and 4 CPUs whatever the machine has."""

    def __init__(self, folder: Path, dashboard_port: int = 8265) -> None:
        self._folder = folder
        self._dashboard = f"http://127.0.0.1:{dashboard_port}"
        self._token = secrets.token_hex(16)
        self._environment = {
            **os.environ,
            **ENVIRONMENT,
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._token,
        }
        self._address = ""

    def start(self, host: Host, labels: Mapping[str, str]) -> None:
        """Start a node on a host; the first one has the head."""
        address = f"{host.address}:6379"
        joined = [f"--address={self._address}"]
        if not self._address:
            folder = f"--temp-dir={self._folder / 'ray'}"
            joined = ["--head", "--port=6379", "--dashboard-host=127.0.0.1", folder]
            self._address = address
        listed = ",".join(f"{key}={value}" for key, value in labels.items())
        command = [*_RAY, "start", *joined, f"--node-ip-address={host.address}", "--num-cpus=4"]
        self._run(host, [*command, "--object-store-memory=100000000", f"--labels={listed}"])

    def deploy(self, head: Host, file: Path) -> None:
        """Deploy a file as a user does; return once the application runs."""
        self._run(head, [*_SERVE, "deploy", str(file), "-a", self._dashboard])
        deadline = time.monotonic() + _START_S
        while (state := self.application(head)).get("status") != "RUNNING":
            if state.get("status") == "DEPLOY_FAILED" or time.monotonic() > deadline:
                raise RuntimeError(f"the application does not run: {state.get('message')}")
            time.sleep(0.25)

    def status(self, head: Host) -> str:
        """Return what `serve status` prints."""
        return self._run(head, [*_SERVE, "status", "-a", self._dashboard])

    def application(self, head: Host) -> dict[str, Any]:
        """Return what Serve's REST API says of the application."""
        request = urllib.request.Request(
            self._dashboard + _APPLICATIONS, headers={"authorization": f"Bearer {self._token}"}
        )
        with head.entered():
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    found: dict[str, Any] = json.load(answer)
            except urllib.error.URLError:
                return {}
        return dict(found["applications"].get("foredraft", {}))

    def places(self, head: Host) -> dict[str, list[str]]:
        """Return the addresses of the nodes where each deployment has running replicas."""
        deployments = self.application(head).get("deployments", {})
        found = {
            name: [each["node_ip"] for each in one["replicas"] if each["state"] == "RUNNING"]
            for name, one in deployments.items()
        }
        return {name: places for name, places in found.items() if places}

    def _run(self, host: Host, command: Sequence[str]) -> str:
        with host.entered():
            done = subprocess.run(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_START_S,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout
