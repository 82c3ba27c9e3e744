"""Processes forked from one that has done their imports, so that many can be started and killed."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(
    [
        *("isr_lab.training.train", "lab.tests.experiments.test_run", "tests.chaos.setting_up"),
        *("gguf", "matplotlib.figure", "peft", "sklearn.metrics", "torch._dynamo", "transformers.integrations.ggml"),
    ]
)


def start(target: Callable[..., object], *arguments: Any) -> BaseProcess:
    """A process that calls an importable function in this environment, in a session of its own."""
    process = _FORKING.Process(target=_run, args=(dict(os.environ), target, arguments))
    process.start()
    return process


def _run(environment: dict[str, str], target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    os.setsid()
    os.environ.update(environment)
    target(*arguments)
