"""The agent's part for runs that have no agent: takes what fragments hand over, batch by batch.

It keeps nothing on disk. Streams that other fragments read are appended to their ingress logs.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa

from anabranch.log import handover, names
from anabranch.log.blocking import Connection
from anabranch.log.codec import Malformed, encode
from anabranch.log.handover import Done, Piece, Poison
from anabranch.protocols.records import Writer
from anabranch.streams.batch import Batch, concat
from anabranch.streams.punctuation import BEGINNING

_LOOK = 0.2


class Delivery(NamedTuple):
    """What a batch has brought on one stream."""

    stream: str
    rows: Batch | None
    punctuation: int


class InLog:
    """One ingress log and its writer."""

    def __init__(self, connection: Connection, query: str, stream: str, generation: int = 1) -> None:
        self._connection = connection
        self._subject = names.subject(query, f"in/{stream}")
        name = names.stream(query, f"in/{stream}")
        config = {"name": name, "subjects": [self._subject], "storage": "file", "allow_direct": True}
        answer = connection.ask(f"STREAM.CREATE.{name}", config)
        if "error" in answer:
            raise OSError(f"the log server does not take {name}: {answer['error']}")
        self.writer = Writer(f"in/{stream}", generation)
        self.writer.complete_from = BEGINNING

    def append(self, rows: Batch | None, punctuation: int) -> None:
        self.writer.punctuation = max(self.writer.punctuation, punctuation)
        data = encode(self.writer.append(rows).record)
        answer = self._connection.request(self._subject, data)
        if b'"error"' in answer:
            raise OSError(f"the log server does not take a record: {answer.decode()}")


class Collector:
    """Answers on the subject of ``query``. ``deliver`` is called once for each batch of each run, in order,
    before the batch is answered."""

    def __init__(
        self,
        url: str,
        query: str,
        schemas: Mapping[str, pa.Schema],
        deliver: Callable[[Done, list[Delivery]], None],
    ) -> None:
        self.poison: list[Poison] = []
        self._url = url
        self._subject = names.engine(query)
        self._schemas = schemas
        self._deliver = deliver
        self._pieces: dict[tuple[str, str, int], dict[str, dict[int, Piece]]] = defaultdict(dict)
        self.last: dict[tuple[str, str], int] = {}
        """The last batch of each run of each fragment."""
        self._leave = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def close(self) -> None:
        self._leave.set()
        self._thread.join()

    def _serve(self) -> None:
        connection = Connection(self._url)
        connection.subscribe(self._subject)
        connection.answers()
        self._ready.set()
        while not self._leave.is_set():
            message = connection.poll(_LOOK)
            if message is not None:
                connection.publish(message.reply, self._answer(message.data))
        connection.close()

    def _answer(self, data: bytes) -> bytes:
        try:
            self._take(handover.decode(data))
        except (Malformed, ValueError, OSError) as error:
            return str(error).encode()
        return handover.OK

    def _take(self, message: handover.Handover) -> None:
        match message:
            case Poison():
                self.poison.append(message)
            case Piece():
                attempts = self._pieces[message.fragment, message.run, message.batch]
                attempts.setdefault(message.task, {})[message.number] = message
            case Done():
                run = (message.fragment, message.run)
                if message.batch <= self.last.get(run, -1):
                    return
                if message.batch != self.last.get(run, -1) + 1:
                    raise ValueError(f"batch {message.batch} comes before batch {self.last.get(run, -1) + 1}")
                self._deliver(message, self._deliveries(message))
                self.last[run] = message.batch

    def _deliveries(self, done: Done) -> list[Delivery]:
        attempts = self._pieces.pop((done.fragment, done.run, done.batch), {})
        rows: dict[str, list[Batch]] = defaultdict(list)
        for task, count in done.pieces.items():
            sent = attempts.get(task, {})
            if len(sent) != count:
                raise ValueError(f"{count} pieces of task {task} count, and {len(sent)} have come")
            for number in range(count):
                piece = sent[number]
                rows[piece.stream].append(handover.rows_of(piece, self._schemas[piece.stream]))
        return [
            Delivery(stream, concat(rows[stream]) if stream in rows else None, punctuation)
            for stream, punctuation in done.punctuation.items()
        ]
