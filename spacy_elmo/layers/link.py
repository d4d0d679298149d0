import weakref
from typing import Any, Callable, Dict, Optional


class WeakLink:
    """A weak reference that is lost on pickling: a saved component must not drag the
    pipeline along. A copy, such as the model that a component rehearses, keeps it.
    """

    def __init__(self, target: Optional[Any] = None) -> None:
        self.connect(target)

    def connect(self, target: Optional[Any]) -> None:
        self.get: Callable[[], Optional[Any]] = (
            _nothing if target is None else weakref.ref(target)
        )

    def __deepcopy__(self, memo: Dict[int, Any]) -> "WeakLink":
        return WeakLink(self.get())

    def __reduce__(self) -> Any:
        return WeakLink, ()


def _nothing() -> None:
    return None
