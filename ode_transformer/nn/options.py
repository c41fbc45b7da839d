"""Options: a field of a choice says once all that there is to say of it.

From the fields come the flags and their checks, the settings that a checkpoint remembers, what an exported folder can
hold, docs/flags.md, docs/combinations.md and the axes of the property tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, Self


@dataclass(frozen=True)
class Option:
    """Declaration of a field.

    :param help: meaning of the flag
    :param values: returns the allowed values, to which plugins add; None for a switch or a number
    :param another: a number beside the default, for tests and tables
    :param interval: positive, non-negative, fraction or any: the allowed numbers
    :param flag: name of the flag; by default the field's, after the prefix of its choice
    :param own_flag_only: each stack has a flag, but there is no short one for both
    :param stacks: those that a model needs for the option
    :param fairseqs: fairseq declares the flag
    :param read_by: tells whether a choice has a use for the option. It looks only at fields that stand before its own
    :param needs: what a choice that reads the option has
    :param short_for: tells whether the short flag sets a choice; by default each one that reads the option
    :param short_needs: what a choice that the short flag sets has
    :param remembered: the option changes what parameters compute, but not their shapes: checkpoints remember it
    :param fixed: parameters are of no use with another value
    :param exported: an exported folder can hold a model with any value
    """

    help: str
    values: Callable[[], Sequence[str]] | None = None
    another: Any = True
    interval: str = "any"
    flag: str = ""
    own_flag_only: bool = False
    stacks: tuple[str, ...] = ()
    fairseqs: bool = False
    read_by: Callable[[Any], bool] = lambda choice: True
    needs: str = ""
    short_for: Callable[[Any], bool] | None = None
    short_needs: str = ""
    remembered: bool = True
    fixed: bool = False
    exported: bool = False
    # Set by ``Choice.options``: name and default of the field, and the group of options that it belongs to.
    name: str = ""
    default: Any = None
    group: str = ""

    @property
    def title(self) -> str:
        """Name of the option in a sentence."""
        return self.name.replace("_", " ")

    def dest(self, stack: str = "") -> str:
        """Return the name in the parsed options of a stack's flag, or of the short one."""
        return (f"{stack}_{self.flag}" if stack else self.flag).replace("-", "_")

    def is_set_by_short_flag(self, choice: Any) -> bool:
        """Tell whether the short flag sets a choice."""
        return self.read_by(choice) and (self.short_for is None or self.short_for(choice))

    def samples(self) -> tuple[Any, ...]:
        """Return values for tests and tables, the default first."""
        alternatives = [self.another] if self.values is None else self.values()
        return (self.default, *(value for value in alternatives if value != self.default))


def option(default: Any, help: str, **properties: Any) -> Any:
    """Declare a field of a choice; the parameters are those of :class:`Option`."""
    return field(default=default, metadata={"option": Option(help, **properties)})


class Choice:
    """Base of the dataclasses whose fields are options, or parts: choices that hold options in turn."""

    flag_prefix: ClassVar[str] = ""

    @classmethod
    @cache
    def options(cls) -> dict[str, Option]:
        """Return all options by name, those of parts too."""
        options: dict[str, Option] = {}
        for entry in fields(cls):  # type: ignore[arg-type]
            declared, name = entry.metadata.get("option"), entry.name
            if declared is None:
                continue
            if isinstance(entry.default, Choice):
                for inner in entry.default.options().values():
                    reader = inner if inner.needs else declared
                    options[inner.name] = replace(inner, group=name, read_by=reader.read_by, needs=reader.needs)
            else:
                flag = declared.flag or cls.flag_prefix + name.replace("_", "-")
                options[name] = replace(declared, name=name, default=entry.default, flag=flag)
        return options

    def value(self, option: Option) -> Any:
        """Return the value of an option."""
        return getattr(getattr(self, option.group) if option.group else self, option.name)

    @classmethod
    def draft(cls, values: Mapping[str, Any]) -> Self:
        """Return a choice of these values by the names of options, without the checks of a choice that is built.

        Options that are not named have their defaults.
        """
        draft = object.__new__(cls)
        defaults = {entry.name: entry.default for entry in fields(cls)}  # type: ignore[arg-type]
        for name, value in (defaults | cls.arguments(values)).items():
            object.__setattr__(draft, name, value)
        return draft

    @classmethod
    def arguments(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a choice whose options have these values by name."""
        options = cls.options()
        arguments = {name: value for name, value in values.items() if not options[name].group}
        for group in {options[name].group for name in values} - {""}:
            parts = {name: value for name, value in values.items() if options[name].group == group}
            arguments[group] = replace(getattr(cls, group), **parts)
        return arguments
