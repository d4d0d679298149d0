"""The file that holds a component's weights, and links to it."""

import os
from pathlib import Path
from typing import NamedTuple, Tuple


class SavedWeights(NamedTuple):
    """A file of weights, and how it was when it was read or written."""

    path: Path
    stamp: Tuple[int, int, int]  # inode, bytes, time of the last change

    @classmethod
    def at(cls, path: Path) -> "SavedWeights":
        stat = os.stat(path)
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        return cls(path.absolute(), stamp)

    def link(self, target: Path) -> bool:
        """Link the file to another path, where the file system can.

        RETURNS (bool): Whether `target` holds these weights now. Not if the file was
            changed since.
        """
        try:
            unchanged = SavedWeights.at(self.path) == self
            if unchanged and not (target.exists() and self.path.samefile(target)):
                target.unlink(missing_ok=True)
                os.link(self.path, target)
        except OSError:
            return False
        return unchanged
