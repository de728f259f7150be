"""Handlers, their calls, and how arguments pass from one to the other. Floor 4; pure.

`@sched.job` makes a `Handler`; calling it makes a `Call`, a value that says what to run. The
arguments are bound to the signature and checked against the annotations at that moment, by the
same decoder that the worker will use, so a wrong argument fails where it was written.

Arguments travel as a map of parameter names, so a deployed worker with one more optional
parameter still understands calls made by the code before it. Calls by name (`Call("send_email",
...)`), made where the code is not imported, travel as [positional, named] and are bound by the worker.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar, cast

import msgspec

from redisched import codec
from redisched.backoff import Retry
from redisched.clock import delta_ms
from redisched.errors import ConfigError, InvalidCall, PayloadUndecodable

P = ParamSpec("P")
R = TypeVar("R")
_R_co = TypeVar("_R_co", covariant=True)

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
MAX_TIMEOUT_S = 366 * 86_400
DEFAULT_KEEP_MS = 10 * 60 * 1000


class Context:
    """What a running handler can know of its job. A parameter annotated `Context` receives it."""

    __slots__ = ("_resource", "_tell", "attempt", "fence", "idempotency_key", "job_id", "scheduled_at", "tenant")

    def __init__(
        self,
        job_id: str,
        tenant: str,
        attempt: int = 1,
        scheduled_at: Any = None,
        idempotency_key: str = "",
        fence: int = 0,
        resource: Any = None,
        tell: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.job_id = job_id
        self.tenant = tenant
        self.attempt = attempt
        self.scheduled_at = scheduled_at
        self.idempotency_key = idempotency_key or job_id
        self.fence = fence
        self._resource = resource
        self._tell = tell

    @property
    def resource(self) -> Any:
        """What the scheduler's lifespan yielded in this process."""
        return self._resource

    async def progress(self, note: str) -> None:
        """Says how far this run is, for `redisched jobs show`. Raises LeaseLost when the run is not ours any more."""
        if self._tell is not None:
            await self._tell(note)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What `@sched.job(...)` says of a handler."""

    retry: Retry = field(default_factory=Retry)
    timeout_ms: int | None = None
    keep_ms: int | None = None  # None: DEFAULT_KEEP_MS for results that are not None; 0: never


class Call(Generic[_R_co]):
    """A handler's name and its arguments: what to run. Awaiting it runs it right here."""

    __slots__ = ("args", "handler", "kwargs", "name", "packed")

    def __init__(self: Call[Any], name: str, /, *args: Any, **kwargs: Any) -> None:
        check_name(name)
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.handler: Handler[..., _R_co] | None = None
        self.packed = _pack(name, [list(args), kwargs], {**dict(enumerate(args, 1)), **kwargs})

    @classmethod
    def bound(cls, handler: Handler[..., _R_co], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[_R_co]:
        call = cls.__new__(cls)
        call.name, call.args, call.kwargs, call.handler = handler.name, args, kwargs, handler
        call.packed = handler.pack(args, kwargs)
        return call

    def __await__(self) -> Generator[Any, None, _R_co]:
        """Runs the handler in this process, without Redis: how a unit test calls it."""
        if self.handler is None:
            raise InvalidCall(f"Call({self.name!r}) was made by name: only a decorated job can be awaited here")
        return self.handler.run_here(self.args, self.kwargs).__await__()

    def __repr__(self) -> str:
        shown = [repr(a) for a in self.args] + [f"{k}={v!r}" for k, v in self.kwargs.items()]
        return f"{self.name}({', '.join(shown)})"


class Handler(Generic[P, R]):
    """A function that runs jobs of one name. Calling it makes a `Call`; nothing runs yet."""

    def __init__(self, function: Callable[P, Any], name: str, options: JobOptions) -> None:
        self.function = function
        self.name = name
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"{name}: a handler that yields would never run; return a value instead")
        self.__doc__ = function.__doc__
        self.__name__ = name
        self.__wrapped__ = function
        self._signature = inspect.signature(function)
        self._hints = _hints(function, name)
        self.context_parameter = self._find_context()
        parameters = [p for p in self._signature.parameters.values() if p.name != self.context_parameter]
        self._bindable = inspect.Signature(parameters)
        self._simple = all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters)
        self._by_position = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self._decoder = self._make_decoder(parameters) if self._simple else None
        self._names = tuple(p.name for p in parameters)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return Call.bound(cast("Handler[..., R]", self), args, dict(kwargs))

    def __repr__(self) -> str:
        return f"<job {self.name}{self._bindable}>"

    @property
    def result_type(self) -> Any:
        return self._hints.get("return", Any)

    # -- the caller's side

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The arguments as bytes, checked as the worker will check them."""
        try:
            bound = self._bindable.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidCall(f"{self.name}{self._bindable}: {error}") from None
        by_name = self._decoder is not None
        packed = _pack(self.name, bound.arguments if by_name else [list(args), kwargs], bound.arguments)
        try:
            self.unpack(packed)
        except PayloadUndecodable as error:
            raise InvalidCall(f"{self.name}{self._bindable}: {error}") from None
        return packed

    # -- the worker's side

    def unpack(self, packed: bytes | msgspec.Raw) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bytes to arguments of the annotated types. Raises PayloadUndecodable."""
        try:
            # 0x80-0x8f, 0xde, 0xdf open a map: the parameters by name
            first = memoryview(packed)[0]
            if self._decoder is not None and (first >> 4 == 8 or first in (0xDE, 0xDF)):
                values = self._decoder.decode(packed)
                unset = msgspec.UNSET
                return (), {n: v for n in self._names if (v := getattr(values, n)) is not unset}
            args, kwargs = codec.decode_any(packed)
            return self._convert(args, kwargs)
        except (msgspec.MsgspecError, TypeError, ValueError, IndexError, RecursionError) as error:
            raise PayloadUndecodable(str(error)) from error

    def _convert(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = self._bindable.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = self._bindable.parameters[name].kind
            hint = self._hints.get(name, Any)
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(_to(v, hint, name) for v in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {k: _to(v, hint, k) for k, v in value.items()}
            else:
                bound.arguments[name] = _to(value, hint, name)
        return self._laid_out(bound)

    def _laid_out(self, bound: inspect.BoundArguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """By name whatever has one: the Context, given by name too, may stand before it."""
        if self._by_position:
            return bound.args, bound.kwargs
        kwargs: dict[str, Any] = {}
        args: list[Any] = []
        for name, value in bound.arguments.items():
            kind = self._bindable.parameters[name].kind
            if kind is inspect.Parameter.POSITIONAL_ONLY:
                args.append(value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                kwargs.update(value)
            else:
                kwargs[name] = value
        return tuple(args), kwargs

    async def run_here(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        if self.context_parameter is not None:
            args, kwargs = self._laid_out(self._bindable.bind(*args, **kwargs))
            kwargs[self.context_parameter] = Context(job_id="here", tenant="default")
        outcome = self.function(*args, **kwargs)
        return cast("R", await outcome if inspect.isawaitable(outcome) else outcome)

    # -- making

    def _find_context(self) -> str | None:
        found = [n for n in self._signature.parameters if self._hints.get(n) is Context]
        if len(found) > 1:
            raise ConfigError(f"{self.name}: one parameter can be the Context, not {', '.join(found)}")
        if not found:
            return None
        of = self._signature.parameters
        rest = any(p.kind is p.VAR_POSITIONAL for p in of.values())
        if of[found[0]].kind is not inspect.Parameter.KEYWORD_ONLY and (
            rest or of[found[0]].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD
        ):
            raise ConfigError(
                f"{self.name}: the Context is given by name; put {found[0]!r} behind the * of its signature"
            )
        return found[0]

    def _make_decoder(self, parameters: list[inspect.Parameter]) -> msgspec.msgpack.Decoder[Any]:
        fields: list[Any] = []
        for p in parameters:
            hint = self._hints.get(p.name, Any)
            if p.default is inspect.Parameter.empty:
                fields.append((p.name, hint))
            else:
                fields.append((p.name, hint | msgspec.UnsetType if hint is not Any else Any, msgspec.UNSET))
        try:
            struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            return msgspec.msgpack.Decoder(struct)
        except (TypeError, RuntimeError) as error:
            raise ConfigError(f"{self.name}: msgspec cannot read these annotations: {error}") from error


@dataclass(slots=True)
class Registry:
    """The handlers of an application and what they share in a process."""

    handlers: dict[str, Handler[..., Any]] = field(default_factory=dict)
    lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None

    def add(self, function: Callable[P, Any], name: str | None, options: JobOptions) -> Handler[P, Any]:
        chosen = name or function.__name__
        check_name(chosen)
        old = self.handlers.get(chosen)
        if old is not None and not _same_place(old.function, function):
            raise ConfigError(f"two handlers are named {chosen!r}; give one of them another: @sched.job(name=...)")
        handler: Handler[P, Any] = Handler(function, chosen, options)
        self.handlers[chosen] = handler
        return handler


def _same_place(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """The same function, declared again: its module was reloaded, or imported after it ran as a script."""
    modules = {one.__module__, other.__module__}
    return one.__qualname__ == other.__qualname__ and (len(modules) == 1 or "__main__" in modules)


def options_of(
    retry: Retry | None = None,
    timeout: timedelta | float | None = None,
    keep_result: timedelta | bool | None = None,
) -> JobOptions:
    timeout_ms = None
    if timeout is not None:
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        timeout_ms = round(seconds * 1000) if 0 < seconds < MAX_TIMEOUT_S else 0
        if timeout_ms <= 0:
            raise ConfigError(f"timeout is more than 0 and less than a year, not {timeout!r} (for example timeout=30)")
    keep_ms = None if keep_result is None else DEFAULT_KEEP_MS if keep_result is True else 0
    if isinstance(keep_result, timedelta):
        keep_ms = delta_ms(keep_result)
    elif keep_result is not None and not isinstance(keep_result, bool):
        raise ConfigError(f"keep_result is a timedelta, True or False, not {keep_result!r}")
    if keep_ms is not None and keep_ms < 0:
        raise ConfigError(f"keep_result is not negative, as {keep_result!r} is")
    return JobOptions(retry or Retry(), timeout_ms, keep_ms)


def check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"a job's name is 1 to 128 of A-Z a-z 0-9 _ . : - , not {name!r:.80}")


def _pack(name: str, value: Any, arguments: Mapping[Any, Any]) -> bytes:
    try:
        return codec.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        # Which one? Asked only now: it costs an encoding an argument.
        where = next((f"argument {n!r}" for n, v in arguments.items() if not _can_pack(v)), "an argument")
        raise InvalidCall(f"{name}: {where} cannot be stored: {error}") from None


def _can_pack(value: Any) -> bool:
    try:
        codec.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True


def _to(value: Any, hint: Any, name: str) -> Any:
    if hint is Any:
        return value
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise PayloadUndecodable(f"{error} (argument {name!r})") from None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ConfigError(f"{name}: its annotations cannot be resolved: {error}") from error
