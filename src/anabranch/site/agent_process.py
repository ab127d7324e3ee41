"""The process of a site's agent: ``python -m anabranch.site.agent_process CONFIG.json``, started by the
site's supervisor (:mod:`anabranch.site.process`).

SIGTERM stops it, SIGHUP has it look at its clock's offset again, and it ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from anabranch.log.server import die_with_parent
from anabranch.site.agent import AgentFailed, SiteAgent
from anabranch.site.config import ConfigError, SiteConfig
from anabranch.site.journal import Journal


def main(arguments: list[str]) -> int:
    die_with_parent()
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        config = SiteConfig.load(Path(arguments[0]))
    except (ConfigError, IndexError) as error:
        print(error, file=sys.stderr)
        return 2
    journal = Journal(config.directory / "agent.jsonl", site=config.site, query=config.query)
    try:
        asyncio.run(_run(config, journal))
    except AgentFailed as error:
        journal.write("failed", why=str(error))
        print(error, file=sys.stderr)
        return 1
    finally:
        journal.close()
    return 0


async def _run(config: SiteConfig, journal: Journal) -> None:
    agent = SiteAgent(config, journal)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.stop)
    loop.add_signal_handler(signal.SIGHUP, agent.clock.adjust)
    await agent.run()


def _end_with_input() -> None:
    """The supervisor holds the other end: when that is gone, so is the supervisor."""
    while os.read(0, 512):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
