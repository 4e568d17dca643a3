"""Publishing: a program declares values of its own and puts them, beside the streams of the node.

This module stands alone because it turns Python types, units and dicts into declarations; the puts
themselves are compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from barograph import _barograph

if TYPE_CHECKING:
    from os import PathLike

    from barograph._barograph import ValueHandle

    ValueType = type[float | int | bool | str | bytes | dict[str, Any] | list[float]]

_TYPES: dict[object, str] = {
    float: "float",
    int: "int",
    bool: "bool",
    str: "str",
    bytes: "bytes",
    dict: "json",
    list: "floats",
}
# Greatest length of a text, bytes, JSON or array.
_VALUE_BYTES_MAX = 65_536
# Greatest length of an application's name that the program has not chosen.
_APPLICATION_CHARACTERS_MAX = 64


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """The declaration of a value: see :func:`gauge`, :func:`counter` and :func:`state`."""

    kind: Literal["gauge", "counter", "state"]
    type: ValueType
    unit: str = ""
    help: str = ""
    bytes_max: int = 0

    def __post_init__(self) -> None:
        if self.type not in _TYPES:
            raise TypeError(f"type is {self.type!r}: there are float, int, bool and str, bytes, dict and list")
        if self.kind != "state" and self.type not in (float, int):
            raise TypeError(f"a {self.kind} is float or int, not {_TYPES[self.type]}: use state()")
        for what, text in (("unit", self.unit), ("help", self.help)):
            if not isinstance(text, str):
                raise TypeError(f"{what} is {text!r}: give a str")
        if not isinstance(self.bytes_max, int) or not 0 <= self.bytes_max <= _VALUE_BYTES_MAX:
            raise ValueError(f"bytes_max is {self.bytes_max!r}: give at most {_VALUE_BYTES_MAX}")


def gauge(unit: str = "", type: ValueType = float, *, help: str = "") -> ValueSpec:
    """Declares a number that goes up and down, like ``gauge("seconds", help="time of one step")``.
    """
    return ValueSpec("gauge", type, unit, help)


def counter(unit: str = "", type: ValueType = int, *, help: str = "") -> ValueSpec:
    """Declares a number that only grows, like ``counter("steps")``."""
    return ValueSpec("counter", type, unit, help)


def state(
    type: ValueType = str, unit: str = "", *, help: str = "", bytes_max: int = 0
) -> ValueSpec:
    """Declares one of a few states, like ``state(bool)`` or the name of a phase; also ``bytes``,
    ``dict`` (JSON: of anything that :func:`json.dumps` accepts, or a str that is JSON) and ``list``
    (of floats, or an array).

    ``bytes_max`` is the greatest length of a text, bytes, JSON or array (8 bytes per float): 4,096
    unless given, at most 65,536. The agent cuts a longer text and counts it, and counts anything
    else that is longer as lost.
    """
    return ValueSpec("state", type, unit, help, bytes_max)


class Publication(_barograph.Publication):
    """A named set of values, and the frames in which they are put; made by
    :func:`barograph.publication`.

    Each value is an attribute, ``p.residual.put(0.5)``, and an item, ``p["residual"]``: hold it
    where a put must be quick. ``with p:`` is one frame, ``with p.step(n):`` one with a number of
    your choice; if an exception cuts a block short, its values are published, but no frame.

    A put carries the time of the call. Readers see the puts of a thread when it ends a frame,
    commits, closes or ends.
    """

    def __new__(
        cls,
        name: str,
        values: Mapping[str, ValueSpec | str | ValueType],
        *,
        labels: Mapping[str, str] | None = None,
        readers: Literal["owner", "group", "all"] = "owner",
        application: str | None = None,
        overflow: Literal["drop-oldest", "block"] = "drop-oldest",
        run_dir: str | PathLike[str] | None = None,
    ) -> Self:
        declared = _declared(values)
        self = super().__new__(
            cls,
            name,
            declared,
            _pairs(labels),
            readers,
            _application() if application is None else application,
            application is not None,
            overflow,
            run_dir,
        )
        # An attribute of the instance is found faster than by any ``__getattr__``.
        mine = vars(self)
        for value in declared:
            if not hasattr(cls, value[0]):
                mine[value[0]] = self[value[0]]
        return self

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> ValueHandle: ...

    else:

        def __getattr__(self, name: str) -> NoReturn:
            known = ", ".join(self.values)
            raise AttributeError(
                f"publication {self.name} has no value {name!r}; it has {known}",
                name=name,
                obj=self,
            )

    def __repr__(self) -> str:
        values = ", ".join(self.values)
        off = "" if self.enabled else f" (off: {self.error or 'closed'})"
        return f"<Publication {self.name}: {values}{off}>"


def publication(
    name: str,
    values: Mapping[str, ValueSpec | str | ValueType],
    *,
    labels: Mapping[str, str] | None = None,
    readers: Literal["owner", "group", "all"] = "owner",
    application: str | None = None,
    overflow: Literal["drop-oldest", "block"] = "drop-oldest",
    run_dir: str | PathLike[str] | None = None,
) -> Publication:
    """Declares the values of this program: the streams ``app.<name>.<value>``, with frames in the
    stream ``app.<name>.frame``.

    ::

        p = barograph.publication("lulesh", {
            "residual": "1",                                # a float, by its unit
            "step_time": barograph.gauge("seconds", help="time of one step"),
            "iteration": barograph.counter("steps"),
            "phase": str,
        })
        for n in range(1000):
            p.put(residual=residual, iteration=n, phase="solve")
            p.frame()

    ``labels`` are labels of this publication's streams; ``rank`` and ``job`` come from the launcher
    unless they are given; ``application`` defaults to the name of the program. ``readers`` may read
    the publication. While nobody reads, ``drop-oldest`` overwrites the oldest values; ``block``
    lets a put wait up to 100 ms while an agent lives. Run directory and ``overflow`` are the same
    for the whole process: the first publication decides them while any is open.

    Publishing never gets in the way: without an agent the newest values are kept for one, and if
    nothing can be published, ``enabled`` is False, ``error`` is the reason and puts do nothing.
    Only mistakes that the program has to correct raise: ValueError for names that are refused or
    taken, TypeError for types. The same name with the same labels is the same publication.
    """
    return Publication(
        name,
        values,
        labels=labels,
        readers=readers,
        application=application,
        overflow=overflow,
        run_dir=run_dir,
    )


def _declared(values: Mapping[str, Any]) -> list[tuple[str, str, str, str, str, int]]:
    if not isinstance(values, Mapping):
        raise TypeError(f'values is {values!r}: give a dict like {{"residual": "1", "phase": str}}')
    declared: list[tuple[str, str, str, str, str, int]] = []
    for name, given in values.items():
        if not isinstance(name, str):
            raise TypeError(f"a value is named {name!r}: give a str")
        spec = _spec(name, given)
        declared.append((name, _TYPES[spec.type], spec.unit, spec.kind, spec.help, spec.bytes_max))
    return declared


def _spec(name: str, given: object) -> ValueSpec:
    if isinstance(given, ValueSpec):
        return given
    if isinstance(given, str):
        return gauge(given)
    if given is float or given is int:
        return gauge(type=given)
    if given is bool or given is str or given is bytes:
        return state(given)
    if given is dict or given is list:
        return state(given)
    raise TypeError(
        f"{name} is declared as {given!r}: give a unit, float, int, bool, str, bytes, dict or list, "
        "or gauge(), counter() or state()"
    )


def _pairs(labels: Mapping[str, str] | None) -> list[tuple[str, str]]:
    if labels is None:
        return []
    if not isinstance(labels, Mapping):
        raise TypeError(f'labels is {labels!r}: give a dict like {{"rank": "3"}}')
    for name, value in labels.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"label {name!r} is {value!r}: give a str")
    return list(labels.items())


def _application() -> str:
    """Returns the program's name: of the script, or of the module that is run with ``-m``."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None and spec.name:
        name = str(spec.name).removesuffix(".__main__")
    else:
        name = Path(file).stem if file else ""
    return name[:_APPLICATION_CHARACTERS_MAX] or "python"
