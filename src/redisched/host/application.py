"""Finds the Scheduler that `package.module:name` names. Imports the user's code, so only hosts call it."""

from __future__ import annotations

import importlib
import os
import sys
import traceback

from redisched.client import Scheduler
from redisched.errors import ConfigError


def load_application(path: str) -> Scheduler:
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"name the application as module:scheduler, for example app:sched, not {path!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"there is no module {module_name!r} here; run this where `import {module_name}` works"
            ) from error
        raise _broken(module_name, error) from error
    except Exception as error:
        raise _broken(module_name, error) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Scheduler):
        names = [name for name, value in vars(module).items() if isinstance(value, Scheduler)]
        hint = f"; did you mean {module_name}:{names[0]}?" if names else ""
        raise ConfigError(f"{path!r} is not a redisched.Scheduler but {type(found).__name__}{hint}")
    return found


def _broken(module_name: str, error: Exception) -> ConfigError:
    """The application's own traceback, without the frames of the import system and of ours."""
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list(
        [f for f in shown.stack if "importlib" not in f.filename and f.filename != __file__]
    )
    return ConfigError(f"importing {module_name!r} failed:\n{''.join(shown.format(chain=False)).rstrip()}")
