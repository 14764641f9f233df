"""A verifier without Ray."""

import sys

from foredraft.rpc.main import main
from verifier_service.config import VerifierConfig
from verifier_service.server import serve

if __name__ == "__main__":
    sys.exit(main("verifier", VerifierConfig, serve))
