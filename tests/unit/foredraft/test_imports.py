"""A process loads only what it needs, seen in fresh interpreters."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def modules(package: str) -> list[str]:
    """Every module of a package but the ones that run on import."""
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in (ROOT / Path(*package.split("."))).rglob("*.py")
        if path.name != "__main__.py"
    )


def loaded_after_importing(names: list[str], unwanted: set[str]) -> set[str]:
    """Import names in a new interpreter and return which unwanted packages came along."""
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(*sorted({unwanted!r} & {{m.split('.')[0] for m in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("package", ["orchestrator", "deployments.ingress", "foredraft"])
def test_the_ingress_the_orchestrator_and_the_library_never_import_torch(package: str) -> None:
    needs("ray", "fastapi")
    names = modules(package)
    assert names
    assert not loaded_after_importing(names, {"torch", "transformers"})


def test_the_shared_library_imports_no_ray_and_only_its_room_rpc_imports_grpc() -> None:
    names = modules("foredraft")
    assert "foredraft.rpc.server" in names
    assert not loaded_after_importing(names, {"ray", "drafter_service", "verifier_service"})
    others = [name for name in names if not name.endswith("_pb2_grpc") and ".rpc" not in name]
    assert "foredraft.codec.common" in others
    # A service's configuration is read where nothing is served.
    assert not loaded_after_importing([*others, "foredraft.rpc.config"], {"grpc", "ray"})


def test_the_orchestrator_alone_needs_no_ray_and_no_grpc() -> None:
    names = modules("orchestrator")
    assert "orchestrator.drive.pipeline" in names
    unwanted = {"ray", "grpc", "torch", "transformers", "fastapi", "numpy"}
    assert not loaded_after_importing(names, unwanted)


@pytest.mark.parametrize(
    "module", ["session.session", "session.denoise", "length.controllers", "run_ahead"]
)
def test_the_state_machines_do_no_io(module: str) -> None:
    names = [f"orchestrator.{module}"]
    unwanted = {"asyncio", "ray", "grpc", "torch", "fastapi", "pydantic"}
    assert not loaded_after_importing(names, unwanted)


# In the fast loop import-linter alone sees to it, which `make check` runs.
@pytest.mark.slow
@pytest.mark.parametrize("service", ["drafter_service", "verifier_service"])
def test_the_services_never_import_ray_or_each_other(service: str) -> None:
    other = {"drafter_service": "verifier_service"}.get(service, "drafter_service")
    assert not loaded_after_importing(modules(service), {"ray", other, "deployments"})


@pytest.mark.parametrize("service", ["denoiser_service", "drafter_service", "verifier_service"])
def test_the_services_clients_never_import_torch(service: str) -> None:
    assert not loaded_after_importing([f"{service}.client"], {"torch", "transformers", "ray"})
