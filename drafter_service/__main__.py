"""A drafter without Ray."""

import sys

from drafter_service.config import DrafterConfig
from drafter_service.server import serve
from foredraft.rpc.main import main

if __name__ == "__main__":
    sys.exit(main("drafter", DrafterConfig, serve))
