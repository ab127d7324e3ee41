"""What an engine hands over arrives, every message and in order, whoever goes away meanwhile."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest

from anabranch.log import blocking, handover
from anabranch.log.blocking import Connection
from anabranch.log.handing import hand_over
from anabranch.log.handover import Piece
from anabranch.log.server import Server

SUBJECT = "engine.test"


class Agent:
    """Takes what comes on the subject, and answers OK or what it refuses it with."""

    def __init__(self, server: Server, refuse: bytes | None = None) -> None:
        self.taken: list[int] = []
        self._url = server.url
        self._refuse = refuse
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._leave.is_set():
            try:
                connection = Connection(self._url)
            except OSError:
                time.sleep(0.05)
                continue
            with contextlib.suppress(OSError):
                self._answer(connection)
            connection.close()

    def _answer(self, connection: Connection) -> None:
        connection.subscribe(SUBJECT)
        while not self._leave.is_set():
            message = connection.poll(0.1)
            if message is not None:
                piece = handover.decode(message.data)
                assert isinstance(piece, Piece)
                self.taken.append(piece.number)
                connection.publish(message.reply, self._refuse or handover.OK)

    def close(self) -> None:
        self._leave.set()
        self._thread.join()


def pieces(count: int) -> Iterator[Piece]:
    for number in range(count):
        yield Piece("made", "run", 0, "task", number, "made", b"rows")


@pytest.fixture(autouse=True)
def no_old_connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept: dict[object, Connection] = {}
    monkeypatch.setattr(blocking, "_shared", kept)
    yield
    for connection in kept.values():
        connection.close()


def test_many_pieces_arrive_in_order(server: Server) -> None:
    agent = Agent(server)
    try:
        assert hand_over(blocking.Server(server.url, None, None), SUBJECT, pieces(50)) == 50
        assert agent.taken == list(range(50))
    finally:
        agent.close()


def test_an_agent_that_is_not_there_yet_is_waited_for(server: Server) -> None:
    late: list[Agent] = []
    timer = threading.Timer(0.5, lambda: late.append(Agent(server)))
    timer.start()
    try:
        assert hand_over(blocking.Server(server.url, None, None), SUBJECT, pieces(5)) == 5
        assert late[0].taken == list(range(5))
    finally:
        timer.join()
        late[0].close()


def test_a_server_that_goes_away_in_between_costs_repetitions_and_nothing_else(server: Server) -> None:
    agent = Agent(server)

    def interrupted() -> Iterator[Piece]:
        for piece in pieces(40):
            if piece.number == 20:
                server.stop()
                server.start()
            yield piece

    try:
        assert hand_over(blocking.Server(server.url, None, None), SUBJECT, interrupted()) == 40
        firsts = sorted(set(agent.taken), key=agent.taken.index)
        assert firsts == list(range(40))
    finally:
        agent.close()


def test_what_the_agent_refuses_is_an_error_with_its_reason(server: Server) -> None:
    agent = Agent(server, refuse=b"batch 7 is not the next one here")
    try:
        with pytest.raises(OSError, match="batch 7 is not the next one here"):
            hand_over(blocking.Server(server.url, None, None), SUBJECT, pieces(3))
    finally:
        agent.close()
