"""Sources and sinks in the sites file: those of all sites, and each site's own.

[[live.sources]]
kind = "spark"
source = "load"
format = "kafka"
options = { subscribe = "load", "kafka.bootstrap.servers" = "broker:9092" }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from anabranch.site.config import ConfigError
from anabranch.site.sinks.settings import Parquet, SinkSettings, ToSpark
from anabranch.site.sources.settings import Files, FromSpark, Replayed, SourceSettings


def texts(conf: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Spark's settings as Spark names them, whether the dots are in the names or in TOML's tables.

    >>> dict(texts({"spark": {"ui": {"enabled": True}}, "spark.cores.max": 4}))
    {'spark.ui.enabled': 'true', 'spark.cores.max': '4'}
    """
    for key, value in conf.items():
        if isinstance(value, dict):
            yield from texts(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", str(value).lower() if isinstance(value, bool) else str(value)


def read_sources(tables: Sequence[dict[str, Any]], where: str, path: Path) -> tuple[SourceSettings, ...]:
    """Paths are looked for from where the file ``path`` is, except those in Spark's options."""
    return tuple(_source(table, f"{where}, source {n + 1}", path) for n, table in enumerate(tables))


def _source(table: dict[str, Any], where: str, path: Path) -> SourceSettings:
    found: SourceSettings = _read(table, Files | Replayed | FromSpark, where)
    match found:
        case Files():
            return msgspec.structs.replace(found, directory=_from(path, found.directory))
        case Replayed():
            return msgspec.structs.replace(found, path=_from(path, found.path))
        case FromSpark():
            _check(found.problem(), f"{where} ({found.source})")
            return found


def read_sinks(tables: Sequence[dict[str, Any]], where: str, path: Path) -> tuple[SinkSettings, ...]:
    """As :func:`read_sources`."""
    return tuple(_sink(table, f"{where}, sink {n + 1}", path) for n, table in enumerate(tables))


def _sink(table: dict[str, Any], where: str, path: Path) -> SinkSettings:
    found: SinkSettings = _read(table, SinkSettings, where)
    if isinstance(found, Parquet):
        return msgspec.structs.replace(found, directory=_from(path, found.directory))
    if isinstance(found, ToSpark):
        _check(found.problem(), f"{where} ({found.application})")
    return found


def _read(table: dict[str, Any], kind: Any, where: str) -> Any:
    options = table.get("options")
    if isinstance(options, dict):
        table = {**table, "options": dict(texts(options))}
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check(problem: str | None, where: str) -> None:
    if problem is not None:
        raise ConfigError(f"{where}: {problem}")


def _from(path: Path, name: str) -> str:
    return str((path.parent / name).resolve())
