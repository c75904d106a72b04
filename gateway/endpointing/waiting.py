"""How long a silence must last to end a turn, from the end-of-turn score and the words so far.

Two witnesses: the sound (the score) and the text. Where they agree that the speaker has finished, the wait is short; where they
disagree, the one that asks for patience counts more, because an interrupted person is worse off than one who waits half a second.
A complete sentence shortens the wait of an unsure sound, not of one that says that more will come.
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
    Reading.DOUBTFUL: 1.0,
}
_LEAST = {  # of the unsure wait, however sure the sound is: a speaker who hesitates pauses for longer than one who breathes
    Reading.UNREAD: 1.0,
    Reading.LEADING: 1.4,
    Reading.DICTATING: 1.5,  # dictated groups are up to 1.2 s apart
    Reading.HESITATING: 1.875,
    Reading.DOUBTFUL: 1.875,
}


def wait_ms(settings: EndpointingSettings, score: float | None, reading: Reading, plain: Reading | None = None) -> float:
    """Milliseconds of silence that end the turn. `score` None: not judged (yet).

    `plain`: the reading without what may have been said instead. A sure sound and a finished text need no third witness: rivals and a
    guess would have made one sure end of twenty wait a second longer.
    """
    waits = settings
    if plain in (Reading.COMPLETE, Reading.OPEN) and score is not None and score >= waits.sure_score:
        reading = plain
    wait = float(waits.unsure_ms)
    if score is not None and score < _UNFINISHED_SCORE:
        wait += (waits.longest_ms - waits.unsure_ms) / 3
    elif score is not None and score > _DOUBTFUL_SCORE:
        sureness = min(1.0, (score - _DOUBTFUL_SCORE) / (waits.sure_score - _DOUBTFUL_SCORE)) if waits.sure_score > _DOUBTFUL_SCORE else 1.0
        wait -= sureness * (waits.unsure_ms - waits.sure_ms)
    if not (reading is Reading.COMPLETE and score is not None and score < _UNFINISHED_SCORE):
        wait *= _BY_TEXT[reading]
    wait = max(wait, waits.unsure_ms * _LEAST.get(reading, 0.0))
    return min(max(wait, waits.sure_ms), waits.longest_ms)
