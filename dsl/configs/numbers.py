"""The numbers of a configuration that are read by name: layers, element type, query heads, runs of a layer."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.dsl.lang import dtypes
from kvplan.dsl.lang.foreign import UnusableValue, described
from kvplan.dsl.rules.answers import Answer, ForeignValues, shortened
from kvplan.dsl.schema.model import MOST_LAYERS
from kvplan.dsl.text.diagnostics import fault, listed, nearest_or_all
from kvplan.dsl.text.source import SourceSpan

# Words that config files give a meaning to.
COUNT, DTYPE, HEADS, RUNS = "layers", "dtype", "query_heads", "runs"
MOST_RUNS = 100
NO_DTYPE = "it does not say the model's element type"
NO_LAYERS = "it does not say how many layers there are"
ADD = (
    "to a copy of the configuration add num_hidden_layers, or the configuration of the model that writes text, as"
    " text_config; or ask its class: --transformers"
)
MOVE = "if {} is the model that writes text, call it text_config in a copy of the configuration"
CORRECT = "correct the numbers in a copy of the file; if a configuration leaves some out, ask its class: --transformers"


def layers_of(facts: ForeignValues, place: SourceSpan, others: Sequence[str] = ()) -> Answer:
    """The number of layers, from 1 to 1000. `others` are mappings that may have it. Raises DslError (F002)."""
    answer = _word(facts, COUNT)
    if isinstance(answer.value, bool) or not isinstance(answer.value, int):
        if answer.value is None:
            help = MOVE.format(listed(others)) if others else ADD
            raise fault("F002", NO_LAYERS, place, _why(answer), help=help)
        message = f"{listed(answer.sources, 'and')} is '{answer.value}', which is no number of layers"
        raise fault("F002", shortened(message), place, help=_written(answer.value))
    if not 1 <= answer.value <= MOST_LAYERS:
        raise fault("F002", f"a model has 1 to {MOST_LAYERS} layers, not {answer.value}", place, help=CORRECT)
    return answer


def dtype_of(facts: ForeignValues, place: SourceSpan) -> Answer:
    """The element type of the model, by its canonical name. Raises DslError (F005)."""
    answer = _word(facts, DTYPE)
    dtype = dtypes.canonical(str(answer.value))
    if dtype not in dtypes.OF_MODELS:
        help = "set dtype in a copy of the configuration; " + nearest_or_all(str(answer.value), dtypes.OF_MODELS_NAMED)
        message = NO_DTYPE if answer.value is None else f"{_why(answer)}, no element type of models"
        raise fault("F005", message, place, answer.doubt if answer.value is None else "", help=help)
    return answer.giving(dtype)


def number_of(facts: ForeignValues, word: str, least: int = 1) -> Answer:
    """The number from `least` that a word gives; an answer without a value if it is not known."""
    answer = _word(facts, word)
    usable = isinstance(answer.value, int) and not isinstance(answer.value, bool) and answer.value >= least
    return answer if usable else answer.refused(f"left out: {_why(answer)}")


def _written(value: object) -> str:
    """Advice about a value that is no number."""
    digits = isinstance(value, str) and value.isdecimal()
    return f"write it as a number, in a copy of the configuration: {value}" if digits else CORRECT


def runs_of(layer_facts: ForeignValues, place: SourceSpan) -> int:
    """The number of times that a model runs a layer, each time with another cache. Raises DslError (F002)."""
    answer = _word(layer_facts, RUNS)
    if answer.absent:
        return 1
    if answer.value is None:
        raise fault("F002", "it does not say how many times a layer runs", place, _why(answer), help=CORRECT)
    if isinstance(answer.value, bool) or not isinstance(answer.value, int) or not 1 <= answer.value <= MOST_RUNS:
        message = f"{listed(answer.sources, 'and')} makes '{answer.value}' runs of a layer, not 1 to {MOST_RUNS}"
        raise fault("F002", shortened(message), place, help="correct it in a copy of the configuration")
    return answer.value


def _why(answer: Answer) -> str:
    return shortened(answer.doubt if answer.value is None else f"{listed(answer.sources, 'and')} is '{answer.value}'")


def _word(facts: ForeignValues, name: str) -> Answer:
    """The answer for a word: its value, or why it has none."""
    value, sources = facts.values.get(name), facts.origins.get(name, (name,))
    if value is None:
        return Answer(None, f"looked for {listed(sources, 'and')}", sources, absent=True)
    if isinstance(value, UnusableValue):
        return Answer(None, value.reason, sources)
    if not isinstance(value, bool | int | str):
        return Answer(None, f"it is {described(value)}", sources)
    return Answer(value, facts.doubts.get(name, ""), sources)
