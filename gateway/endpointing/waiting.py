"""How long a silence must last to end a turn, from the end-of-turn score and the words so far.

Two witnesses: the sound (the score) and the text. Where they agree that the speaker has finished, the wait is short; where they
disagree, the one that asks for patience counts more, because an interrupted person is worse off than one who waits half a second.
A text that is still awaited is waited for, up to the unsure wait: nothing can be answered before it comes.
"""

from __future__ import annotations

from gateway.config import EndpointingSettings
from gateway.endpointing.reading import Reading

_DOUBTFUL_SCORE = 0.5  # the model's own decision border; from here to `sure_score` the wait shrinks evenly
_UNFINISHED_SCORE = 0.2  # below it the sound itself says that more will come
_BY_TEXT = {  # factors on the score's own wait
    Reading.UNREAD: 1.0,
    Reading.EMPTY: 1.0,
    Reading.OPEN: 1.0,
    Reading.COMPLETE: 0.7,
    Reading.LEADING: 1.0,
    Reading.DICTATING: 1.5,
    Reading.HESITATING: 2.0,
}
_LEAST = {  # of the unsure wait, however sure the sound is: a speaker who hesitates pauses for longer than one who breathes
    Reading.UNREAD: 1.0,
    Reading.LEADING: 1.0,
    Reading.DICTATING: 1.25,
    Reading.HESITATING: 1.5,
}


def wait_ms(settings: EndpointingSettings, score: float | None, reading: Reading) -> float:
    """Milliseconds of silence that end the turn. `score` None: not judged (yet)."""
    waits = settings
    wait = float(waits.unsure_ms)
    if score is not None and score < _UNFINISHED_SCORE:
        wait += (waits.longest_ms - waits.unsure_ms) / 3
    elif score is not None and score > _DOUBTFUL_SCORE:
        sureness = min(1.0, (score - _DOUBTFUL_SCORE) / (waits.sure_score - _DOUBTFUL_SCORE)) if waits.sure_score > _DOUBTFUL_SCORE else 1.0
        wait -= sureness * (waits.unsure_ms - waits.sure_ms)
    wait = max(wait * _BY_TEXT[reading], waits.unsure_ms * _LEAST.get(reading, 0.0))
    return min(max(wait, waits.sure_ms), waits.longest_ms)
