import json
from pathlib import Path
from typing import Any, Iterator, Mapping

from ..storage import replacing


class Log:
    """The curve of a run: a JSON object a line, each with its "step".

    path (Path): The file. What an earlier run wrote is kept, but for the lines after
        `step` and the closing one ("final"), which are written again.
    step (int): The step from which the run goes on.
    """

    def __init__(self, path: Path, step: int):
        self.path = path
        kept = "".join(_kept_lines(path, step)) if path.is_file() else ""
        with replacing(path) as temporary:
            temporary.write_text(kept, encoding="utf8")

    def write(self, record: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf8") as file:
            file.write(json.dumps(record) + "\n")


def _kept_lines(path: Path, step: int) -> Iterator[str]:
    for line in path.read_text(encoding="utf8").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            # A run that was killed in the middle of a line.
            continue
        if record["step"] <= step and not record.get("final"):
            yield line + "\n"
