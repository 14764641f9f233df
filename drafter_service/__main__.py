"""A drafter without Ray."""

import sys

from drafter_service.config import DrafterConfig
from drafter_service.server import serve
from drafter_service.target_folder import with_target_folder
from foredraft.rpc.main import main

if __name__ == "__main__":
    sys.exit(main("drafter", DrafterConfig, lambda config: serve(with_target_folder(config))))
