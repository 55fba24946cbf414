"""An unsupported setting stops the engine with its name and an advice; these tests run without SGLang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.integrations.sglang.limits import check
from kvplan.integrations.shared.errors import ConnectorError

ARGUMENTS = {
    "disaggregation_mode": "prefill",
    "dp_size": 1,
    "dcp_size": 1,
    "enable_pd_role_switch": False,
    "enable_hisparse": False,
}
KV = {"state_types": [], "num_draft_entries": 0}
PARALLEL = {"pp_size": 1, "attn_dp_size": 1, "attn_cp_size": 1}
DECODES = {"disaggregation_mode": "decode"}


def checked(arguments: dict[str, Any], kv: dict[str, Any], parallel: dict[str, Any]) -> None:
    every = ({**ARGUMENTS, **arguments}, {**KV, **kv}, {**PARALLEL, **parallel})
    check(*(SimpleNamespace(**said) for said in every))


@pytest.mark.parametrize(
    ("arguments", "kv", "parallel", "what", "help"),
    [
        ({"dp_size": 2}, {}, {}, "data parallel workers (--dp-size)", "start one engine for each rank"),
        ({}, {}, {"attn_dp_size": 2}, "data parallel attention (--attn-dp-size)", "--tp-size then shares attention"),
        (DECODES, {}, {"pp_size": 2}, "pipeline parallel workers that decode (--pp-size)", "prefill may have stages"),
        ({}, {}, {"attn_cp_size": 2}, "context parallel workers", "--tp-size"),
        ({"dcp_size": 2}, {}, {}, "context parallel workers", "--tp-size"),
        ({}, {"num_draft_entries": 2}, {}, "draft layers (--speculative-algorithm)", "on both engines"),
        ({"enable_pd_role_switch": True}, {}, {}, "role switches", "start the engine again"),
        ({"enable_hisparse": True}, {}, {}, "hierarchical sparse attention", "leave it out"),
        ({}, {"state_types": ["mamba", "swa"]}, {}, "a window pool of its own (swa)", "--disable-hybrid-swa-memory"),
        ({}, {"state_types": ["dsa"]}, {}, "keys of sparse attention (dsa)", "another transfer backend"),
        ({}, {"state_types": ["block_scale"]}, {}, "block_scale", "another transfer backend"),
    ],
)
def test_a_setting_that_is_not_supported_is_named_with_what_to_do(
    arguments: dict[str, Any], kv: dict[str, Any], parallel: dict[str, Any], what: str, help: str
) -> None:
    with pytest.raises(ConnectorError) as error:
        checked(arguments, kv, parallel)
    assert error.value.code == "I012"
    assert what in error.value.message
    assert help in error.value.help


def test_several_settings_are_named_at_once() -> None:
    with pytest.raises(ConnectorError) as error:
        checked({"dp_size": 2}, {"num_draft_entries": 1}, {})
    assert "(--dp-size), draft layers" in error.value.message
    assert "each rank" in error.value.help
    assert "both engines" in error.value.help


def test_stages_of_prefill_and_recurrent_states_are_supported() -> None:
    checked({}, {"state_types": [SimpleNamespace(value="mamba")]}, {"pp_size": 2})
    checked(DECODES, {"state_types": ["mamba"]}, {})
