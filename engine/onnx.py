"""An onnxruntime session for a machine with few cores: bounded threads that do not spin.

The library's default lets them spin, which takes four times as long on shared cores.
"""

from __future__ import annotations

from typing import Any

import onnxruntime

from engine.api import EngineSetupError


def open_session(path: str, threads: int) -> Any:  # Any: the package is not typed
    """The model in `path`, on the CPU. Raises `EngineSetupError`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for each fault and no common one
        raise EngineSetupError(f"{path} is not an ONNX model that runs here: {type(error).__name__}") from error
