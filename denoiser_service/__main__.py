"""A denoiser without Ray."""

import sys

from denoiser_service.config import DenoiserConfig
from denoiser_service.server import serve
from foredraft.rpc.main import main

if __name__ == "__main__":
    sys.exit(main("denoiser", DenoiserConfig, serve))
