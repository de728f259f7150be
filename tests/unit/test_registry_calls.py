"""Contexts, calls and registration: tries to get a handler called with what it did not ask for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redisched import Call, Context, Retry, codec
from redisched.errors import ConfigError, InvalidCall
from redisched.registry import DEFAULT_KEEP_MS, JobOptions, Registry, options_of
from tests.unit.test_registry import Line, Point, both, made, mail, takes_plain

pytestmark = pytest.mark.anyio


# -- the Context


def ctx_first(ctx: Context, to: str, n: int = 1) -> Any:
    return ctx.job_id, to, n


def ctx_last(to: str, n: int = 1, *, ctx: Context) -> Any:
    return ctx.job_id, to, n


def ctx_middle(to: str, ctx: Context, n: int = 1) -> Any:
    return ctx.job_id, to, n


def ctx_position(to: str, /, ctx: Context, n: int = 1) -> Any:
    return ctx.job_id, to, n


def ctx_names(ctx: Context, to: str, n: int = 1, **more: Any) -> Any:
    return (ctx.job_id, to, n, *more.values())


def ctx_rest(to: str, n: int = 1, *rest: Any, ctx: Context) -> Any:
    return (ctx.job_id, to, n, *rest)


WITH_CONTEXT = [ctx_first, ctx_last, ctx_middle, ctx_position, ctx_names, ctx_rest]


@pytest.mark.parametrize("function", WITH_CONTEXT, ids=lambda f: f.__name__)
async def test_a_context_is_given_wherever_it_stands(function: Any) -> None:
    # A caller leaves it out; by position, what stands behind it must not slip into its place.
    handler = made(function)
    call = handler("a@b.c", 2)
    assert await call == ("here", "a@b.c", 2)
    args, kwargs = handler.unpack(call.packed)
    assert handler.context_parameter is not None
    kwargs[handler.context_parameter] = Context("k-1", "acme")
    assert function(*args, **kwargs) == ("k-1", "a@b.c", 2)


async def test_a_context_and_the_rest_of_the_arguments() -> None:
    # The two shapes that can hold more than they name.
    assert await made(ctx_names)("a", 2, more=3) == ("here", "a", 2, 3)
    assert await made(ctx_rest)("a", 2, 3) == ("here", "a", 2, 3)


def test_a_context_cannot_be_sent() -> None:
    # A call that brings a Context of its own could forge a fencing token.
    with pytest.raises(InvalidCall, match="ctx"):
        made(ctx_first)(to="a", ctx=Context("x", "y"))


def ctx_two(a: Context, b: Context) -> None: ...
def ctx_before_rest(ctx: Context, *rest: int) -> None: ...
def ctx_only_position(ctx: Context, /, x: int) -> None: ...
def unresolvable(x: NoSuchThing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def yields(x: int) -> Any:
    yield x


async def yields_async(x: int) -> Any:
    yield x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (ctx_two, "one parameter can be the Context"),
        (ctx_before_rest, "behind the"),
        (ctx_only_position, "behind the"),
        (unresolvable, "NoSuchThing"),
        (takes_plain(int | Point | Line), "msgspec"),
        (yields, "yields"),
        (yields_async, "yields"),
    ],
    ids=lambda part: getattr(part, "__name__", None),
)
def test_a_handler_that_could_never_run_is_refused_when_it_is_declared(function: Any, said: str) -> None:
    # Import time is when its author looks; a generator would even end as done, without having run.
    with pytest.raises(ConfigError, match=said):
        made(function)


# -- calls


async def test_awaiting_a_call_runs_it_here() -> None:
    # How a unit test calls a handler: no server, the very objects that were passed.
    async def double(values: list[int]) -> list[int]:
        values += values
        return values

    given = [1, 2]
    assert await made(double)(given) is given
    assert given == [1, 2, 1, 2]


async def test_a_call_by_name_cannot_run_here() -> None:
    # There is no code to run.
    with pytest.raises(InvalidCall, match="by name"):
        await Call("mail", "a@b.c")


def test_making_a_call_runs_nothing() -> None:
    # `send_email("a@b.c")` without enqueue must not send.
    ran = []

    def note(x: int) -> None:
        ran.append(x)

    call = made(note)(3)
    assert (ran, repr(call), call.name) == ([], "note(3)", "note")


def test_a_call_keeps_what_it_was_made_with() -> None:
    # A list that the caller changes before the enqueue must not change what was checked.
    values = [1]
    call = made(takes_plain(list[int]))(values)
    values.append("x")  # type: ignore[arg-type]
    assert codec.decode_any(call.packed) == {"value": [1]}


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 129, "a\n", None, 5])
def test_a_name_that_cannot_be_a_name_is_refused(name: Any) -> None:
    # Names stand in logs, metrics and the command line.
    with pytest.raises(ConfigError, match="name"):
        Call(name)


# -- registering


def test_a_function_may_be_registered_again_but_its_name_not_taken() -> None:
    # Reloading a module registers its functions again; another function of that name is a mistake.
    registry = Registry()
    registry.add(mail, None, JobOptions())
    again = registry.add(mail, None, JobOptions(timeout_ms=5))
    assert registry.handlers["mail"] is again
    with pytest.raises(ConfigError, match="two handlers are named 'mail'"):
        registry.add(both, "mail", JobOptions())
    assert registry.add(both, "other", JobOptions()).name == "other"


def test_a_lambda_needs_a_name() -> None:
    # "<lambda>" is nobody's name.
    with pytest.raises(ConfigError, match="name"):
        Registry().add(lambda: 1, None, JobOptions())


@pytest.mark.parametrize(
    ("timeout", "keep", "timeout_ms", "keep_ms"),
    [
        (None, None, None, None),
        (30, True, 30_000, DEFAULT_KEEP_MS),
        (0.5, False, 500, 0),
        (timedelta(minutes=1), timedelta(hours=1), 60_000, 3_600_000),
        (None, timedelta(0), None, 0),
    ],
)
def test_options_in_milliseconds(timeout: Any, keep: Any, timeout_ms: Any, keep_ms: Any) -> None:
    # None, True and False of keep_result are three different things.
    options = options_of(None, timeout, keep)
    assert (options.timeout_ms, options.keep_ms, options.retry) == (timeout_ms, keep_ms, Retry())


@pytest.mark.parametrize(
    ("timeout", "keep"), [(0, None), (-1, None), (timedelta(-1), None), (None, 300), (None, 0), (None, timedelta(-1))]
)
def test_wrong_options_are_refused(timeout: Any, keep: Any) -> None:
    # keep_result=300 looks like five minutes, and once kept nothing at all.
    with pytest.raises(ConfigError, match=r"timeout|keep_result"):
        options_of(None, timeout, keep)


def test_a_context_knows_its_job() -> None:
    # Without a key of its own a job's id is what makes its effects idempotent.
    assert Context("k-1", "acme").idempotency_key == "k-1"
    assert Context("k-1", "acme", idempotency_key="order-7").idempotency_key == "order-7"


async def test_progress_outside_of_a_worker_is_harmless() -> None:
    # A unit test that awaits a handler has nobody to tell.
    await Context("here", "default").progress("half")
