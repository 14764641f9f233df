"""GGUF files, read as untrusted input and converted to a folder that the verifier serves."""
