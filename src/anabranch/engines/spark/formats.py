"""What ``format`` names: one of Spark's formats, or, as ``package.module:name``, Python of the user's own."""

from __future__ import annotations

import importlib
from typing import Any

from pyspark.sql.datasource import DataSource


class FormatError(ValueError):
    """A format that cannot be used: the sentence says why."""


def imported(format: str) -> Any:
    """What ``package.module:name`` is; None if ``format`` is a name of Spark's."""
    module, colon, name = format.partition(":")
    if not colon:
        return None
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise FormatError(
            f"format {format!r} cannot be imported ({error}); it must be where Python looks on this site, as "
            "the query's own modules are"
        ) from None


def is_data_source(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, DataSource)


def registered(spark: Any, format: str) -> str:
    """The name by which Spark knows ``format``; a data source in Python is made known to it."""
    found = imported(format)
    if found is None:
        return format
    if not is_data_source(found):
        raise FormatError(f"format {format!r} is no subclass of pyspark.sql.datasource.DataSource")
    spark.dataSource.register(found)
    name: str = found.name()
    return name
