"""`Change`: one named way in which a problem is made different, with what it costs and what it does to learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from rpeg.search.problem import Problem


class Change(ABC):
    """A frozen value. It changes nothing of what is learned unless `learning` says what, in words.

    widens: whether all that it brings is plans that the problem does not have.
    """

    widens: ClassVar[bool] = False

    @abstractmethod
    def apply(self, problem: Problem) -> Problem:
        """The problem with this change. InputError where it cannot be made."""

    @abstractmethod
    def words(self, problem: Problem) -> str:
        """What it is, for this problem: ``72 devices``."""

    @abstractmethod
    def cost(self, problem: Problem) -> str:
        """What has to be given for it, in words."""

    def learning(self, problem: Problem) -> str:
        """What it changes of what is learned; "" for nothing."""
        return ""


def counted(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``2,048 devices``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
