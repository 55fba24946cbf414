"""The codes of a checkpoint's configuration: F foreign files."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.dsl.code import ErrorCode, example

CONFIGS: Mapping[str, ErrorCode] = {
    "F001": ErrorCode(
        "a configuration that cannot be read",
        "The file is not there, is a folder, or is no JSON mapping in UTF-8. The message says what, and where."
        + example("kvplan new checkpoint/", "kvplan new checkpoint/config.json"),
    ),
    "F002": ErrorCode(
        "a configuration does not say how many layers there are",
        "Without that nothing can be said of it. The message names the keys that were asked for; they may stand in a "
        "mapping inside, of those that layouts/configs names. A model has at most 1000 layers."
        + example('{"blocks": 32}', '{"num_hidden_layers": 32}'),
    ),
    "F003": ErrorCode(
        "nothing in a configuration is known",
        "No rule of any kind holds for any layer. Write the model file by hand, or give the kind or a model file rules "
        "for its keys: `match` and `config` in docs/new-model.md."
        + example('{"num_hidden_layers": 32, "heads": 8}', '{"num_hidden_layers": 32, "num_key_value_heads": 8}'),
    ),
    "F004": ErrorCode(
        "a configuration lacks a number of a cache",
        "A kind was recognised, and a parameter without which it cannot be described has no value, or one that it "
        "cannot have. Checkpoints often leave out what is a default of the code that reads them: add the key to a copy "
        "of the configuration, with a value that you know."
        + example('{"num_attention_heads": 32}', '{"num_attention_heads": 32, "head_dim": 128}'),
    ),
    "F005": ErrorCode(
        "a configuration has an unknown element type",
        "The type of the model is one that kvplan does not know, or no word. See T002."
        + example('"dtype": "auto"', '"dtype": "bfloat16"'),
    ),
    "F006": ErrorCode(
        "a file that cannot be written",
        "A model file is named after its model, NAME.yaml, in a folder that is there; the name is not taken. No file "
        "is overwritten, for it may hold what somebody found out." + example("-o mine.yml", "-o mine.yaml"),
    ),
    "F007": ErrorCode(
        "the numbers of a configuration make no layout",
        "Sizes are whole numbers from 1, a window and a chunk exclude each other, and there are no more KV heads than "
        "query heads. The message says which numbers, or shows the line of the model file that would be wrong, with "
        "the key that it is from." + example('"num_key_value_heads": 0', '"num_key_value_heads": 8'),
    ),
}
