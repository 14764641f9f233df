"""The shared library: records, errors, bounds, the wire contract, noise, the HTTP client."""

__version__ = "0.2.0"
