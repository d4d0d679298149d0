"""What a listener remembers of the pipeline around it."""

import weakref
from typing import Any, Callable, Dict, Optional


class WeakLink:
    """A way to an object that lives elsewhere. It ends with the object, and does not
    travel: a pickled or saved component must not drag it along. A copy, such as
    the model that a component rehearses, has the same object to ask.
    """

    def __init__(self, target: Optional[Any] = None) -> None:
        self.connect(target)

    def connect(self, target: Optional[Any]) -> None:
        self._target: Callable[[], Any] = (
            _nothing if target is None else weakref.ref(target)
        )

    def get(self) -> Optional[Any]:
        return self._target()

    def __deepcopy__(self, memo: Dict[int, Any]) -> "WeakLink":
        return WeakLink(self.get())

    def __getstate__(self) -> Dict[str, Any]:
        return {}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.connect(None)


class Flag:
    """Something that has happened here, and is not saved with a model."""

    is_set = False


def _nothing() -> None:
    return None
