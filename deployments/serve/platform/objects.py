"""Raw bytes of Ray's object store, read without unpickling."""

from __future__ import annotations

from typing import Any, cast

from foredraft.errors import TensorLost


def _core_worker() -> Any:
    from ray._private import worker

    connected: Any = worker.global_worker
    return connected.core_worker


def object_content(ref: Any) -> bytes:
    """Return what fetch_bytes needs of an object that this process owns: its id and address."""
    _, owner, _ = _core_worker().serialize_object_ref(ref)
    content: bytes = ref.binary() + owner
    return content


def fetch_bytes(content: bytes, size: int, timeout_s: float) -> bytes:
    """Return an object's bytes; raise TensorLost if it is gone, late or not `size` raw bytes.

    `ray.get` would unpickle whatever is marked as pickled, errors included: so the
    object is read as it is stored, and only raw bytes are taken. content must be object_content's.
    """
    import ray
    from ray._private import ray_constants

    core, make_ref = _core_worker(), cast("Any", ray.ObjectRef)
    id_size = ray.ObjectRef.size()
    try:
        ref = make_ref(content[:id_size], content[id_size:])
        # Keeps it while it is read, although its owner may free it.
        core.deserialize_and_register_object_ref(
            ref.binary(), ray.ObjectRef.nil(), content[id_size:], b""
        )
        [(data, metadata, _)] = core.get_objects([ref], int(1000 * timeout_s))
    except (ray.exceptions.RayError, ValueError) as error:
        raise TensorLost(f"the object store has lost a tensor: {type(error).__name__}") from None
    if metadata != ray_constants.OBJECT_METADATA_TYPE_RAW or data is None or data.size != size:
        raise TensorLost("the object store has lost a tensor")
    found: bytes = data.to_pybytes()
    return found
