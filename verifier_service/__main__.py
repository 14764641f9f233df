"""A verifier without Ray."""

import sys

from foredraft.rpc.main import main
from verifier_service.config import VerifierConfig
from verifier_service.server import serve
from verifier_service.target_folder import with_target_folder

if __name__ == "__main__":
    sys.exit(main("verifier", VerifierConfig, lambda config: serve(with_target_folder(config))))
