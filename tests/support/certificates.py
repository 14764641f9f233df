"""Certificates of a day, by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def write_certificates(folder: Path) -> None:
    """Write an authority's, a server's and a client's that it signed, and another authority's."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    for ca in ("ca", "other"):
        openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", f"/CN={ca}", "-days", "2"),
        )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name, ca in (("server", "ca"), ("client", "ca"), ("stranger", "other")):
        openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"),
        )
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key"),
            *("-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "names"),
        )
