"""What gradients that come again before the step mean, and what users are told then."""

import weakref
from collections.abc import Callable, Iterable, Mapping

import torch
from torch.utils.hooks import RemovableHandle

from spardl.torch.graphs import outside_graphs

# A step may well need some passes whose gradients are used otherwise, as SAM's; but not ever more of them.
_FRESH_STARTS = 8


def hook_on_gradients(
    parameters: Iterable[torch.nn.Parameter], method: Callable[[torch.nn.Parameter], None]
) -> list[RemovableHandle]:
    """Calls ``method`` whenever backward has added to the ``grad`` of one of them, as long as its object lives.

    The garbage collector does not look into these hooks: one that held its object would keep it, and the model.
    """
    known = weakref.WeakMethod(method)

    def hook(parameter: torch.nn.Parameter) -> None:
        if (method := known()) is not None:
            method(parameter)

    hook = outside_graphs(hook)
    return [p.register_post_accumulate_grad_hook(hook) for p in parameters]  # type: ignore[no-untyped-call]


class Arrivals:
    """Notes each gradient of a cycle. ``once``: gradients are sent when they come, so none may come again.

    Otherwise one that is added to the one before it is accumulation, and fine. But one that comes after the weights
    have moved, or after the one before was thrown away, tells that another optimizer does the steps, if it goes on so.
    """

    def __init__(self, parameters: Mapping[str, torch.nn.Parameter], *, once: bool) -> None:
        self._parameters, self._once = parameters, once
        self._last: dict[str, tuple[torch.Tensor | None, int]] = {}
        self._fresh_starts: dict[str, int] = {}

    def note(self, name: str) -> Exception | None:
        """A gradient came. Returns what the user has to mend, if anything."""
        parameter = self._parameters[name]
        before, self._last[name] = self._last.get(name), (parameter.grad, parameter._version)
        if before is not None and self._once:
            return _came_again(name)
        if before is None or (parameter.grad is before[0] and parameter._version == before[1]):
            return None
        self._fresh_starts[name] = self._fresh_starts.get(name, 0) + 1
        return _never_stepped(name) if self._fresh_starts[name] >= _FRESH_STARTS else None

    def forget(self) -> None:
        """The step has come."""
        self._last, self._fresh_starts = {}, {}


def _came_again(name: str) -> RuntimeError:
    return RuntimeError(
        f"the gradient of {name!r} came again before step(), but gradients are sent when they come. If you call "
        "backward() several times before step(), put all but the last into `with handle.no_sync():`, or use "
        "distribute(..., overlap=False). If you leave out a step(), call handle.synchronize() in its place. If another "
        "optimizer does the steps, hand that one to distribute()."
    )


def changed(name: str) -> RuntimeError:
    return RuntimeError(
        f"the gradient of {name!r} was changed between backward() and step(), but gradients are sent when they come. "
        "To clip or change gradients call handle.synchronize() first; with a GradScaler use "
        "distribute(..., scaler=scaler)."
    )


def _never_stepped(name: str) -> RuntimeError:
    return RuntimeError(
        f"gradients of {name!r} came {_FRESH_STARTS + 1} times anew, but step() of the distributed optimizer never. If "
        "another optimizer does the steps, this rank trains alone: hand that one to distribute(). If these "
        "gradients are not for a step(), compute them in `with handle.no_sync():`."
    )
