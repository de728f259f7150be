"""Handlers and calls: tries to get an argument changed on its way, and a wrong one past the call."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redisched import Call, codec
from redisched.errors import InvalidCall, PayloadUndecodable
from redisched.registry import Handler, JobOptions

pytestmark = pytest.mark.anyio


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    label: str = ""
    near: list[Point] = dataclasses.field(default_factory=list)


class Line(msgspec.Struct):
    start: Point
    end: Point | None = None


class Row(msgspec.Struct, array_like=True, tag=True):
    n: int


class Pair(NamedTuple):
    a: int
    b: str


class Options(TypedDict, total=False):
    retries: int


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTS = st.integers(-(2**63), 2**63 - 1)
POINTS = st.builds(Point, x=INTS, label=TEXT, near=st.lists(st.builds(Point, x=INTS), max_size=2))
MOMENTS = st.datetimes(timezones=st.just(UTC))

# annotation -> values that must come back equal
TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "nothing": (Any, st.none() | st.booleans() | INTS | TEXT | st.binary() | st.lists(TEXT)),
    "bool": (bool, st.booleans()),
    "int": (int, INTS),
    "float": (float, st.floats(allow_nan=False)),
    "str": (str, TEXT),
    "bytes": (bytes, st.binary()),
    "datetime": (datetime, MOMENTS),
    "naive datetime": (datetime, st.datetimes()),
    "date": (date, st.dates()),
    "time": (time, st.times()),
    "timedelta": (timedelta, st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000))),
    "uuid": (uuid.UUID, st.uuids()),
    "decimal": (Decimal, st.decimals(allow_nan=False)),
    "enum": (Color, st.sampled_from(Color)),
    "int enum": (Level, st.sampled_from(Level)),
    "dataclass": (Point, POINTS),
    "struct": (Line, st.builds(Line, start=POINTS, end=st.none() | POINTS)),
    "tagged struct": (Row, st.builds(Row, n=INTS)),
    "named tuple": (Pair, st.builds(Pair, a=INTS, b=TEXT)),
    "typed dict": (Options, st.just({}) | INTS.map(lambda n: {"retries": n})),
    "optional": (typing.Optional[int], st.none() | INTS),  # noqa: UP045 - people write it
    "union": (int | str | None, st.none() | INTS | TEXT),
    "list": (list[datetime], st.lists(MOMENTS, max_size=3)),
    "dict": (dict[str, Decimal], st.dictionaries(TEXT, st.decimals(allow_nan=False), max_size=3)),
    "dict of ints": (dict[int, Point], st.dictionaries(INTS, POINTS, max_size=3)),
    "set": (set[int], st.sets(INTS, max_size=5)),
    "frozenset": (frozenset[str], st.frozensets(TEXT, max_size=5)),
    "tuple": (tuple[int, str], st.tuples(INTS, TEXT)),
    "many": (tuple[int, ...], st.lists(INTS, max_size=5).map(tuple)),
    "literal": (Literal["a", "b", 3], st.sampled_from(["a", "b", 3])),
    "bounded": (Annotated[int, msgspec.Meta(ge=0)], st.integers(0, 2**63 - 1)),
}


def takes_plain(hint: Any) -> Callable[..., Any]:
    def take(value): ...  # type: ignore[no-untyped-def]

    take.__annotations__["value"] = hint
    return take


def takes_default(hint: Any) -> Callable[..., Any]:
    def take(value=None): ...  # type: ignore[no-untyped-def]

    take.__annotations__["value"] = hint
    return take


def takes_named(hint: Any) -> Callable[..., Any]:
    def take(*, value): ...  # type: ignore[no-untyped-def]

    take.__annotations__["value"] = hint
    return take


def takes_position(hint: Any) -> Callable[..., Any]:
    def take(value, /): ...  # type: ignore[no-untyped-def]

    take.__annotations__["value"] = hint
    return take


def takes_many(hint: Any) -> Callable[..., Any]:
    def take(*value): ...  # type: ignore[no-untyped-def]

    take.__annotations__["value"] = hint
    return take


def takes_any_name(hint: Any) -> Callable[..., Any]:
    def take(**value): ...  # type: ignore[no-untyped-def]

    take.__annotations__["value"] = hint
    return take


# how a signature takes one value -> where that value then is in (args, kwargs)
SHAPES: dict[Callable[[Any], Callable[..., Any]], Callable[[Any, Any], Any]] = {
    takes_plain: lambda args, kwargs: kwargs["value"],
    takes_default: lambda args, kwargs: kwargs["value"],
    takes_named: lambda args, kwargs: kwargs["value"],
    takes_position: lambda args, kwargs: args[0],
    takes_many: lambda args, kwargs: args[0],
    takes_any_name: lambda args, kwargs: kwargs["value"],
}


def made(function: Callable[..., Any], **options: Any) -> Handler[..., Any]:
    return Handler(function, function.__name__, JobOptions(**options))


def call_of(shape: Any, handler: Handler[..., Any], value: Any) -> Call[Any]:
    return handler(value=value) if shape in (takes_named, takes_any_name) else handler(value)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_arguments_come_back_equal_and_of_their_type(kind: str, shape: Any, data: st.DataObject) -> None:
    # The caller's value against the worker's: through bytes, by the annotation alone.
    hint, values = TYPES[kind]
    handler = made(shape(hint))
    value = data.draw(values)
    found = SHAPES[shape](*handler.unpack(call_of(shape, handler, value).packed))
    assert found == value
    assert hint is Any or type(found) is type(value)


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
def test_a_call_by_name_arrives_the_same(kind: str, data: st.DataObject) -> None:
    # Where the code is not imported nothing is checked or named; the worker must understand it all the same.
    hint, values = TYPES[kind]
    value = data.draw(values)
    for call in (Call("take", value), Call("take", value=value)):
        args, kwargs = made(takes_plain(hint)).unpack(call.packed)
        assert (*args, *kwargs.values()) == (value,)


@given(value=st.floats(), text=TEXT)
def test_nan_is_a_float_and_an_int_will_do_for_one(value: float, text: str) -> None:
    # repr instead of ==: nan is not equal to itself.
    def scale(by: float, label: str) -> None: ...

    _, kwargs = made(scale).unpack(made(scale)(value, text).packed)
    assert repr(kwargs) == repr({"by": value, "label": text})
    assert made(scale).unpack(made(scale)(3, "").packed)[1]["by"] == 3.0


WRONG: list[tuple[Any, Any]] = [
    (int, "1"),
    (int, None),
    (int, 1.5),
    (str, 1),
    (str, b"x"),
    (datetime, "soon"),
    (date, "2027-13-01"),
    (timedelta, "later"),
    (uuid.UUID, "not-one"),
    (Decimal, "ten"),
    (Color, "green"),
    (Level, 3),
    (Point, {"label": "x"}),
    (Line, {"start": {"x": "y"}}),
    (list[int], [1, "2"]),
    (dict[str, int], {"a": "b"}),
    (tuple[int, str], (1,)),
    (set[int], {"a"}),
    (Literal["a", "b"], "c"),
    (int | None, "x"),
    (Annotated[int, msgspec.Meta(ge=0)], -1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize(("hint", "wrong"), WRONG, ids=str)
def test_a_wrong_argument_fails_at_the_call_and_is_named(shape: Any, hint: Any, wrong: Any) -> None:
    # Failing in the worker, hours later, five times, is what this is instead of.
    handler = made(shape(hint))
    with pytest.raises(InvalidCall) as caught:
        call_of(shape, handler, wrong)
    reason = str(caught.value).partition("): ")[2]
    assert "value" in reason


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize("wrong", [object(), 2**70, "\ud800", [lambda: 0], ...], ids=repr)
def test_what_cannot_be_stored_fails_at_the_call_and_is_named(shape: Any, wrong: Any) -> None:
    # "an argument cannot be stored" does not help with eleven of them.
    handler = made(shape(Any))
    with pytest.raises(InvalidCall, match="'value' cannot be stored"):
        call_of(shape, handler, wrong)


def test_a_call_by_name_says_which_argument_cannot_be_stored() -> None:
    # It has no signature to tell names from; the position will do.
    with pytest.raises(InvalidCall, match="argument 2 cannot be stored"):
        Call("mail", 1, object())
    with pytest.raises(InvalidCall, match="argument 'to' cannot be stored"):
        Call("mail", 1, to=object())


def mail(to: str, *, subject: str = "hi", copies: int = 1) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        ((), {}, "to"),
        (("a", "b"), {}, "too many positional"),
        (("a",), {"subjekt": "x"}, "subjekt"),
        (("a",), {"to": "b"}, "to"),
        (("a",), {"copies": "x"}, "copies"),
        (("a",), {"copies": None}, "copies"),
    ],
)
def test_arguments_that_do_not_fit_the_signature_fail_at_the_call(args: Any, kwargs: Any, named: str) -> None:
    # As a plain call of the function would.
    with pytest.raises(InvalidCall, match=named) as caught:
        made(mail)(*args, **kwargs)
    assert isinstance(caught.value, TypeError)
    assert "mail(to" in str(caught.value)


def test_defaults_are_the_workers() -> None:
    # A default that travelled would freeze what the code said on the day of the call.
    call = made(mail)("a@b.c")
    assert codec.decode_any(call.packed) == {"to": "a@b.c"}
    assert made(mail).unpack(call.packed) == ((), {"to": "a@b.c"})


def test_a_worker_with_one_more_optional_parameter_understands_older_calls() -> None:
    # A rolling deployment: clients of yesterday, workers of today.
    def newer(to: str, cc: str = "", *, subject: str = "", copies: int = 2) -> None: ...

    old = made(mail)("a@b.c", subject="yo")
    assert made(newer).unpack(old.packed) == ((), {"to": "a@b.c", "subject": "yo"})


def test_a_worker_without_a_parameter_refuses_newer_calls() -> None:
    # Dropping what it does not know would send the mail without its attachment.
    def older(to: str) -> None: ...

    with pytest.raises(PayloadUndecodable, match="subject"):
        made(older).unpack(made(mail)("a@b.c", subject="yo").packed)


def both(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> Any:
    return a, b, rest, c, more


@given(
    a=INTS, b=INTS, rest=st.lists(INTS, max_size=4), c=st.none() | INTS, more=st.dictionaries(TEXT, INTS, max_size=4)
)
def test_every_kind_of_parameter_at_once(a: int, b: int, rest: list[int], c: int | None, more: dict[str, int]) -> None:
    # Names in **more may be those of other parameters' positions: a positional-only `a` and an `a=` are two things.
    more = {name: n for name, n in more.items() if name not in ("b", "c")}
    named = {"c": c, **more} if c is not None else more
    args, kwargs = made(both).unpack(made(both)(a, b, *rest, **named).packed)
    assert both(*args, **kwargs) == both(a, b, *rest, **named)


@given(st.binary())
@pytest.mark.parametrize("function", [mail, both, takes_plain(Any)], ids=lambda f: f.__name__)
def test_foreign_bytes_are_undecodable(function: Any, packed: bytes) -> None:
    # The runner expects PayloadUndecodable and nothing else; another error would stop its fetching.
    try:
        made(function).unpack(packed)
    except PayloadUndecodable:
        pass


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x80",
        b"\x81\xa2to\x01",
        b"\x92\x01\x02",
        b"\x92\x90\x81\x01\x02",
        b"\xc0",
        b"\x92\x90" + b"\x91" * 9_000 + b"\x90",
    ],
    ids=lambda packed: repr(packed[:20]),
)
def test_broken_bytes_are_undecodable(packed: bytes) -> None:
    # Nothing, a missing parameter, a wrong type, no pair, names that are none, nested past any stack.
    with pytest.raises(PayloadUndecodable):
        made(mail).unpack(packed)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_arguments_nested_too_deep_are_refused_in_our_words() -> None:
    # How deep is too deep depends on the stack at hand: a caller near its end must not get a RecursionError.
    handler = made(takes_plain(Any))
    packed = handler(nested(500)).packed

    def at(depth: int) -> Any:
        return at(depth - 1) if depth else handler.unpack(packed)

    # From Python 3.12 on C code has a stack of its own and may get through; what may not come is a RecursionError.
    with contextlib.suppress(PayloadUndecodable):
        at(600)
    with pytest.raises(InvalidCall):
        handler(nested(100_000))
