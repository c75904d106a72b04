"""One ONNX inference at a time that can be broken off, and its sound without the silence that leads. For local voices' stages.

An own onnxruntime session: the library's default lets its threads spin, which on shared cores takes four times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from engine.tts.lead import LEAD_MS, SILENT


class InterruptibleSession:
    """An onnxruntime session whose running inference can be ended from another thread. One inference at a time."""

    def __init__(self, path: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._options = onnxruntime.RunOptions()

    def arm(self) -> None:
        """Forget an earlier interruption."""
        self._options = onnxruntime.RunOptions()

    def interrupt(self) -> None:
        """The running inference raises soon; the session stays usable."""
        self._options.terminate = True

    def run(self, names: list[str] | None, inputs: dict[str, Any]) -> Any:  # Any: arrays; the signature that Piper calls
        return self._session.run(names, inputs, self._options)


def trim_lead(samples: NDArray[np.float32], sample_rate_hz: int) -> NDArray[np.float32]:
    """`(n_samples,)` floats without most of the silence before the first sound."""
    loud = np.flatnonzero(np.abs(samples) > SILENT)
    start = int(loud[0]) - LEAD_MS * sample_rate_hz // 1000 if len(loud) else 0
    return samples[max(0, start) :]
