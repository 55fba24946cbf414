"""The router in front of stub engines: both legs, streams, clients that leave, and engines that fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.integrations.router.stubs import HELD, PATHS, Routed, StubEngine, routed, serving

from kvplan.integrations.router.app import RouterConfig, application

V, S = "vllm", "sglang"
KEY = b"key".hex()
PATIENCE = 10.0


def vllm(**said: Any) -> StubEngine:
    return StubEngine(V, {"text": "v"}, {"kv_transfer_params": HELD}, **said)


def sglang(**said: Any) -> StubEngine:
    return StubEngine(S, {"text": "s"}, **said)


MAKE = {V: vllm, S: sglang}


async def until(met: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not met():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("decode", [V, S])
@pytest.mark.parametrize("prefill", [V, S])
def test_each_engine_is_asked_in_its_own_words(prefill: str, decode: str, path: str) -> None:
    async def scenario(made: Routed) -> None:
        status, said = await made.said(path, max_tokens=9, min_tokens=4, seed=3)
        assert (status, said["choices"]) == (200, [made.decode.choice])
        (first,), (second,) = made.prefill.asked, made.decode.asked
        common: dict[str, Any] = {"model": "small", "prompt": [1, 2, 3], "seed": 3}
        if prefill == V:
            params = first.pop("kv_transfer_params")
            room = params.pop("transfer_id")
            assert params == {"do_remote_decode": True, "whole_prompt": decode != V}
            assert first == {**common, "max_tokens": 1, "min_tokens": 1, "stream": False}
            host, port = HELD["remote_host"], HELD["remote_port"]
        else:
            room = str(first.pop("bootstrap_room"))
            assert first.pop("custom_params") == {"whole_prompt": decode == S}
            assert first == {**common, "max_tokens": 9, "min_tokens": 4, "stream": False}
            host, port = "10.0.0.2", 7700
        if decode == V:
            where = {"remote_host": host, "remote_port": port, "remote_key": "key"}
            assert second.pop("kv_transfer_params") == {"do_remote_prefill": True, "transfer_id": room, **where}
        else:
            assert second.pop("bootstrap_host") == f"tcp://{KEY}@{host}"
            assert (second.pop("bootstrap_port"), str(second.pop("bootstrap_room"))) == (port, room)
        assert second == {**common, "max_tokens": 9, "min_tokens": 4}

    routed(MAKE[prefill](), MAKE[decode](), scenario)


def test_each_request_has_a_room_of_its_own_and_an_engine_is_looked_up_once() -> None:
    async def scenario(made: Routed) -> None:
        await asyncio.gather(*(made.said() for _ in range(20)))
        rooms = {body["bootstrap_room"] for body in made.prefill.asked}
        assert len(rooms) == 20
        assert {int(body["kv_transfer_params"]["transfer_id"]) for body in made.decode.asked} == rooms

    routed(sglang(), vllm(), scenario)


def test_a_client_s_own_parameters_go_with_what_the_router_says() -> None:
    async def scenario(made: Routed) -> None:
        await made.said(custom_params={"budget": 7, "whole_prompt": True})
        assert made.prefill.asked[0]["custom_params"] == {"budget": 7, "whole_prompt": False}
        await made.said(custom_params=[1])
        assert made.prefill.asked[1]["custom_params"] == {"whole_prompt": False}

    routed(sglang(), vllm(), scenario)


def test_a_client_does_not_choose_where_caches_come_from() -> None:
    async def scenario(made: Routed) -> None:
        await made.said(kv_transfer_params={"remote_host": "evil"}, bootstrap_host="evil", bootstrap_room=1)
        assert "evil" not in json.dumps([made.prefill.asked, made.decode.asked])

    routed(vllm(), sglang(), scenario)


def test_headers_by_which_engines_know_a_client_go_to_both() -> None:
    async def scenario(made: Routed) -> None:
        headers = {"Authorization": "Bearer x", "X-Request-Id": "r", "Cookie": "c"}
        async with made.client.post(made.url + PATHS[0], json={"prompt": "a"}, headers=headers) as response:
            assert response.status == 200
        for engine in (made.prefill, made.decode):
            (heard,) = engine.headers
            assert (heard["Authorization"], heard["X-Request-Id"], heard.get("Cookie")) == ("Bearer x", "r", None)
        assert made.prefill.told == ["Bearer x"], "it says where its workers answer to those that it knows"

    routed(sglang(), vllm(), scenario)


def test_a_stream_that_ends_before_it_began_is_an_error() -> None:
    async def scenario(made: Routed) -> None:
        status, said = await made.said(stream=True)
        assert status == 502
        assert "ended its answer before it began" in error_of(said)[1]

    routed(vllm(), sglang(events=0), scenario)


@pytest.mark.parametrize("prefill", [V, S])
def test_a_stream_comes_event_by_event(prefill: str) -> None:
    async def scenario(made: Routed) -> None:
        async with made.ask(stream=True, stream_options={"include_usage": True}) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            first = await response.content.readuntil(b"\n\n")
            assert json.loads(first[6:])["choices"][0]["number"] == 0
            made.decode.ready.set()  # It was not before the first event was here.
            rest = await response.content.read()
        assert [event[:6] for event in rest.split(b"\n\n")] == [b"data: "] * 3 + [b""]
        assert rest.endswith(b"data: [DONE]\n\n")
        assert "stream_options" not in made.prefill.asked[0]
        assert made.decode.asked[0]["stream_options"] == {"include_usage": True}

    routed(MAKE[prefill](), sglang(), scenario)


FIRST = {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{"a": -0.5}]}
UNKNOWN = {"tokens": ["?", "b"], "token_logprobs": [None, -1.0], "top_logprobs": [{"?": None}, {"b": -1.0}]}
MENDED = {"tokens": ["a", "b"], "token_logprobs": [-0.5, -1.0], "top_logprobs": [{"a": -0.5}, {"b": -1.0}]}
CHAT = {"content": [{"token": "a", "logprob": -0.5}]}
UNKNOWN_CHAT = {"content": [{"token": "a", "logprob": None}, {"token": "b", "logprob": -1.0}]}
MENDED_CHAT = {"content": [*CHAT["content"], *UNKNOWN_CHAT["content"][1:]]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "asked", "first", "found", "wanted"),
    [(PATHS[0], 0, FIRST, UNKNOWN, MENDED), (PATHS[1], True, CHAT, UNKNOWN_CHAT, MENDED_CHAT)],
)
def test_the_first_token_s_logprob_is_prefill_s(
    path: str, asked: Any, first: Any, found: Any, wanted: Any, stream: bool
) -> None:
    """Decode was told the token by a note, which has no logprob of it."""

    async def scenario(made: Routed) -> None:
        if not stream:
            _, said = await made.said(path, logprobs=asked)
            assert said["choices"][0]["logprobs"] == wanted
            return
        async with made.ask(path, logprobs=asked, stream=True) as response:
            events = (await response.content.read()).split(b"\n\n")
        choices = [json.loads(event[6:])["choices"][0]["logprobs"] for event in events if event[6:7] == b"{"]
        assert choices == [wanted, found, found]

    prefill, decode = vllm(), sglang()
    prefill.choice, decode.choice = {"logprobs": first}, {"logprobs": found}

    async def played(made: Routed) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(scenario(made))
            while not task.done():
                made.decode.ready.set()
                await asyncio.sleep(0.01)

    routed(prefill, decode, played)


def test_logprobs_that_decode_knows_stay_as_they_are() -> None:
    async def scenario(made: Routed) -> None:
        _, said = await made.said(logprobs=1)
        assert said["choices"][0]["logprobs"] == UNKNOWN

    prefill, decode = sglang(), sglang()
    prefill.choice, decode.choice = {"logprobs": FIRST}, {"logprobs": UNKNOWN}
    routed(prefill, decode, scenario)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("decode", [V, S])
def test_a_client_that_leaves_ends_the_request_on_both_engines(decode: str, stream: bool) -> None:
    async def scenario(made: Routed) -> None:
        for engine in (made.prefill, made.decode):
            engine.ready.clear()
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.5), made.ask(stream=stream):
                pass
        await until(lambda: (made.prefill.left, made.decode.left) == (1, 1))

    routed(sglang(), MAKE[decode](), scenario)


def test_a_client_that_leaves_in_a_stream_ends_it() -> None:
    async def scenario(made: Routed) -> None:
        async with made.ask(stream=True) as response:
            await response.content.readuntil(b"\n\n")
            response.close()
        await until(lambda: made.decode.left == 1)

    routed(vllm(), sglang(), scenario)


def test_a_client_that_does_not_read_ends_the_request() -> None:
    """Its answer would stay on decode until somebody reads it."""

    async def scenario(made: Routed) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(made.url.rpartition(":")[2]), limit=1 << 10)
        data = json.dumps({"prompt": "a", "stream": True}).encode()
        head = f"POST {PATHS[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await reader.readuntil(b"\r\n\r\n")
        made.decode.ready.set()
        await until(lambda: made.decode.left == 1)
        writer.close()

    decode = sglang(events=200)
    decode.choice = {"text": "x" * (1 << 20)}
    routed(vllm(), decode, scenario, silence=0.5)


def test_a_client_that_does_not_send_its_body_is_told_so() -> None:
    async def scenario(made: Routed) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(made.url.rpartition(":")[2]))
        writer.write(f"POST {PATHS[0]} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert b" 408 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()

    routed(vllm(), sglang(), scenario, silence=0.5)


def error_of(said: Any) -> tuple[str, str]:
    return said["error"]["type"], said["error"]["message"]


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_what_an_engine_answers_instead_is_handed_on(side: str) -> None:
    async def scenario(made: Routed) -> None:
        for engine in (made.prefill, made.decode):
            engine.ready.clear()
        dead: StubEngine = getattr(made, side)
        broken = asyncio.create_task(made.said())
        await until(lambda: dead.asked)
        dead.status, dead.error = 500, {"error": {"message": "out of memory"}}
        dead.ready.set()
        assert await broken == (500, dead.error)

    routed(sglang(), vllm(), scenario)


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_an_engine_that_cannot_be_reached_is_named(side: str) -> None:
    async def scenario(made: Routed) -> None:
        nowhere = {"prefill": made.prefill.url, "decode": made.decode.url, side: "http://127.0.0.1:9"}

        async with serving(application(RouterConfig((nowhere["prefill"],), (nowhere["decode"],)))) as url:
            async with made.client.post(url + PATHS[0], json={"prompt": "a"}) as response:
                assert response.status == 502
                kind, message = error_of(await response.json())
            async with made.client.get(url + "/health") as response:
                assert response.status == 503
                assert await response.json() == {"unhealthy": [f"the {side} engine at http://127.0.0.1:9"]}
        assert kind == "engine_unreachable"
        assert f"the {side} engine at http://127.0.0.1:9 cannot be reached" in message

    routed(vllm(), sglang(), scenario)


def test_an_engine_that_says_nothing_ends_the_request_in_time_and_on_the_other_engine() -> None:
    async def scenario(made: Routed) -> None:
        made.decode.ready.clear()
        made.prefill.ready.clear()
        status, said = await made.said()
        assert status == 504
        assert error_of(said)[0] == "engine_timeout"
        await until(lambda: (made.prefill.left, made.decode.left) == (1, 1))

    routed(sglang(), vllm(), scenario, silence=0.5)


def test_an_engine_that_dies_in_a_stream_is_named_in_its_last_event() -> None:
    async def scenario(made: Routed) -> None:
        async with made.ask(stream=True) as response:
            await response.content.readuntil(b"\n\n")
            rest = await response.content.read()
        error, done = [event for event in rest.split(b"\n\n") if event]
        assert error_of(json.loads(error[6:]))[0] == "engine_timeout"
        assert done == b"data: [DONE]"

    routed(vllm(), sglang(), scenario, silence=0.5)


def test_prefill_that_fails_while_decode_waits_for_it_ends_decode() -> None:
    async def scenario(made: Routed) -> None:
        made.decode.ready.clear()
        made.prefill.status, made.prefill.error = 400, {"error": {"message": "too long"}}
        assert await made.said() == (400, made.prefill.error)
        await until(lambda: made.decode.left == len(made.decode.asked))

    routed(sglang(), vllm(), scenario)


def test_prefill_that_fails_after_decode_has_answered_changes_nothing() -> None:
    async def scenario(made: Routed) -> None:
        made.prefill.ready.clear()
        task = asyncio.create_task(made.said())
        await until(lambda: len(made.prefill.asked) == 1)
        await asyncio.sleep(0.2)
        made.prefill.status, made.prefill.error = 500, {}
        made.prefill.ready.set()
        status, said = await task
        assert (status, said["choices"]) == (200, [made.decode.choice])

    routed(sglang(), vllm(), scenario)


@pytest.mark.parametrize(
    ("prefill", "text"),
    [
        (StubEngine(V), "kept nothing of the request: is it started to prefill?"),
        (StubEngine(V, extra={"kv_transfer_params": {"remote_host": "x"}}), "kept nothing of the request"),
        (StubEngine(S, record={"no": "record"}), "has no record of a worker at http://127.0.0.1"),
        (StubEngine(S, info={"no": "port"}), "does not say where its workers are recorded"),
        (StubEngine(S, info=["no"]), "does not say where its workers are recorded"),
        (StubEngine("openai"), "says that its models belong to 'openai', not to sglang or vllm"),
        (StubEngine(V, models=[1]), "says that its models belong to '', not to sglang or vllm"),
        (StubEngine(V, models={"data": []}), "says that its models belong to ''"),
    ],
)
def test_a_prefill_engine_that_cannot_be_paired_is_named(prefill: StubEngine, text: str) -> None:
    async def scenario(made: Routed) -> None:
        status, said = await made.said()
        assert status == 502
        assert text in error_of(said)[1]
        assert made.decode.asked == []

    routed(prefill, sglang(), scenario)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"n": 2}, "n is 2: a request has one answer here"),
        ({"best_of": 3}, "best_of is 3"),
        ({"echo": True}, "echo is not supported"),
        ({"prompt_logprobs": 0}, "prompt_logprobs is not supported"),
        ({"prompt": ["a", "b"]}, "prompt is a list of prompts"),
        ({"prompt": [[1], [2]]}, "prompt is a list of prompts"),
    ],
)
def test_what_two_engines_cannot_share_is_refused(body: dict[str, Any], text: str) -> None:
    async def scenario(made: Routed) -> None:
        status, said = await made.said(**body)
        assert status == 400
        assert error_of(said)[0] == "invalid_request_error"
        assert text in error_of(said)[1]
        assert made.prefill.asked == made.decode.asked == []

    routed(vllm(), sglang(), scenario)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff"])
def test_a_body_that_is_no_object_is_refused(data: bytes) -> None:
    async def scenario(made: Routed) -> None:
        async with made.client.post(made.url + PATHS[0], data=data) as response:
            assert response.status == 400

    routed(vllm(), sglang(), scenario)


def test_models_are_decode_s_and_health_is_that_of_all() -> None:
    async def scenario(made: Routed) -> None:
        async with made.client.get(made.url + "/v1/models") as response:
            assert (await response.json())["data"][0]["owned_by"] == S
        async with made.client.get(made.url + "/health") as response:
            assert (response.status, await response.json()) == (200, {"unhealthy": []})
        made.decode.health_s = 60
        async with made.client.get(made.url + "/health") as response:
            assert response.status == 503
            assert (await response.json())["unhealthy"] == [f"the decode engine at {made.decode.url}"]
        made.decode.health_s = 0
        made.prefill.health = 503
        async with made.client.get(made.url + "/health") as response:
            assert response.status == 503
            assert (await response.json())["unhealthy"] == [f"the prefill engine at {made.prefill.url}"]

    routed(vllm(), sglang(), scenario, connect=1.0)


def test_a_body_of_another_path_is_not_routed() -> None:
    async def scenario(made: Routed) -> None:
        async with made.client.post(made.url + "/v1/embeddings", json={}) as response:
            assert response.status == 404

    routed(vllm(), sglang(), scenario)
