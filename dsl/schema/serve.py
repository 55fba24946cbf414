"""The forms of how an engine is started: its flags, its variables, and the configuration of its connector."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from kvplan.dsl.schema.forms import Form, FormKeys, ListShape, MapShape, key
from kvplan.dsl.schema.requirement import REQUIRE, Requirement
from kvplan.dsl.schema.shapes import SENTENCE, TEXT, TextShape
from kvplan.dsl.text.yaml_reader import Named, YamlScalar


@dataclass(frozen=True, slots=True)
class Setting(FormKeys):
    """An engine's setting for an option of a side: a `flag` or a `variable`, with the engine's `words` for values.

    `unset` is the value that the engine takes if it is not set, empty if that is the option's default.
    """

    flag: str = key(TEXT, "the flag that sets it, as `--block-size`")
    variable: str = key(TEXT, "or the variable of the environment that does")
    words: Named[str] = key(MapShape(TEXT), "the engine's words for values, by those of a side, where they differ")
    argument: YamlScalar = key(
        TEXT, "what the flag takes for another value than the default, if more than the value, `{value}`"
    )
    unset: str = key(TextShape("value"), "what the engine takes where nobody sets it, if that is not the default here")

    @property
    def name(self) -> str:
        """The flag or the variable; empty without either."""
        return self.flag or self.variable

    def value_word(self, value: str) -> str:
        """The argument of the flag or the variable for a value of a side."""
        told = self.words.get(value, value)
        return str(self.argument).replace("{value}", told) if self.argument else told

    def with_word(self, told: str) -> str:
        """`--block-size 64`, `CACHE_LAYOUT=nhd`: the setting with the engine's word for a value."""
        return f"{self.flag} {shlex.quote(told)}" if self.flag else f"{self.variable}={shlex.quote(told)}"


TOLD = ("flag", "variable")
SETTING = Form("a setting", Setting, either=TOLD)


@dataclass(frozen=True, slots=True)
class Serve(FormKeys):
    """The start of an engine with a connector: the `command`, and the `flag` or `variable` for the connector's
    configuration. This consists of `connector`, the word of `roles` under the key `role`, and the connector's own keys
    under `extra`.

    `require` has the connector's conditions. `settings` are for options and mesh axes, `interleave` for tokens that are
    shared out over workers.
    """

    command: YamlScalar = key(
        TEXT,
        "what starts the engine, in which `{model}`, `{host}`, `{port}` and `{role}` are replaced; `{host}` is the"
        " machine's address, `{role}` the word of `roles`",
        required=True,
    )
    flag: str = key(TEXT, "the flag that takes the connector's configuration, as JSON")
    variable: str = key(TEXT, "or the variable of the environment that does; it is left out if nothing is to be said")
    releases: str = key(
        TEXT, "the engine's releases that the connector is for, as `>=0.31,<0.34`; by default every one"
    )
    require: tuple[Requirement, ...] = key(
        ListShape(REQUIRE),
        "conditions over options, mesh axes and `decodes`, which says whether the engine decodes; one about caches may"
        " ask for the `whole` of their `needs`. Without them the connector stops the engine",
    )
    connector: Named[str] = key(MapShape(TEXT), "what that JSON has to say in any case")
    role: str = key(TEXT, "its key for the part that an engine plays, if that stands there")
    roles: Named[str] = key(
        MapShape(TEXT, must=("prefill", "decode")),
        "the words for `prefill`, `decode` and `both`, which is left out if one engine cannot do both",
        required=True,
    )
    extra: str = key(TEXT, "its key for what is the connector's own; without it that stands beside the other keys")
    beyond: Named[str] = key(MapShape(TEXT), "what that JSON also has to say if the peer runs on another machine")
    devices: str = key(TEXT, "the variable of the environment that says which devices an engine takes")
    router: YamlScalar = key(
        TEXT,
        "a command that starts a router, in which `{port}`, `{prefill}`, `{prefill_port}`, `{decode}` and"
        " `{decode_port}` are replaced; `kvplan route` if not given",
    )
    settings: Named[Setting] = key(
        MapShape(SETTING), "mesh axis or option of a side → the engine's setting; others go to the connector"
    )
    interleave: Setting = key(
        SETTING,
        "the setting of the interleave, if workers take turns of tokens; the engine's default may differ",
    )
    windows: str = key(
        TEXT, "the flag with which layers with windows share pools with the others, if the connector moves no others"
    )


@dataclass(frozen=True, slots=True)
class LayoutChoice(FormKeys):
    """An option that may be changed for speed: the engine's setting, and the `values` to compare."""

    values: tuple[YamlScalar, ...] = key(ListShape(SENTENCE), "the values that are compared", required=True)
    setting: Setting = key(
        SETTING, "the engine's setting, if `serve` does not have it; without either, the option is named"
    )


CHOICE = Form("a choice", LayoutChoice)
SERVE = Form("serve", Serve, either=TOLD)
