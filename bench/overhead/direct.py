"""A configuration that is reached both ways: by Serve's proxy, and by the ingress's own port."""

from __future__ import annotations

from deployments.config import HttpOptions, ServeFile
from deployments.ingress.direct.config import DirectConfig

_PROXY_PORT = 8002


def reached_both_ways(file: ServeFile) -> ServeFile:
    """Return the configuration with Serve's proxy, and with a port of the ingress's own."""
    entry = file.application
    direct = entry.args.ingress.direct or DirectConfig()
    ingress = entry.args.ingress.model_copy(update={"direct": direct})
    args = entry.args.model_copy(update={"ingress": ingress})
    return file.model_copy(
        update={
            "proxy_location": "HeadOnly",
            "http_options": HttpOptions(port=_PROXY_PORT),
            "applications": [entry.model_copy(update={"args": args})],
        }
    )
