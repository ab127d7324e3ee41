"""A site's agent: plans installed and spread, roles begun and stopped, strangers turned away."""

import msgspec
import pytest
from pieces import COLUMNS, SECOND, opened, reported, sent

from anabranch.engines.arrow import ArrowEngine
from anabranch.graph import Filter, Graph, Output, Source
from anabranch.plan import Plan, Subscription, full_mesh
from anabranch.protocols.agent import Agent
from anabranch.protocols.effects import Append, CloseBranch, Drop, Effect, ReadLog, Send, SetTimer, Trim
from anabranch.protocols.events import Rejected
from anabranch.protocols.messages import Heartbeat, Needed, PlanOffer, Submit
from anabranch.protocols.settings import Settings
from anabranch.sim.disk import Disk
from anabranch.streams.punctuation import BEGINNING, END

GRAPH = Graph(
    "q",
    (Source("s", COLUMNS),),
    (Filter("f", "s", "v > 0"), Filter("g", "f", "v > 1")),
    (Output("o", "g"),),
)
SITES = ("a", "b", "c")


def plan(epoch: int = 1, coordinator: str = "a", f: str = "a", g: str = "b", entries: str = "a") -> Plan:
    return full_mesh(
        GRAPH,
        {"s": tuple(entries)},
        {"f": tuple(f), "g": tuple(g)},
        [Subscription("app", "o", "c")],
        epoch=epoch,
        coordinator=coordinator,
    )


class Site:
    """An agent and its disk, which does at once what it is asked for."""

    def __init__(self, name: str, first: Plan) -> None:
        self.name = name
        self.disk = Disk()
        self.life = 0
        self.plan = first
        self.restart()

    def restart(self) -> list[Effect]:
        self.life += 1
        self.agent = Agent(
            GRAPH,
            self.name,
            SITES,
            600 * SECOND,
            Settings(),
            lambda operators, exports: ArrowEngine(GRAPH, operators, exports, self.name),
            self.life,
        )
        return self.do(self.agent.start(0, self.plan))

    def do(self, effects: list[Effect]) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            done.append(effect)
            match effect:
                case Append(stream, position, record):
                    assert position == self.disk.stream(stream).end
                    self.disk.stream(stream).append(record)
                    done += self.do(self.agent.on_appended(0, effect))
                case Trim(stream, keep):
                    self.disk.stream(stream).trim(keep)
                case Drop(stream):
                    self.disk.streams.pop(stream, None)
                case ReadLog(stream, tag):
                    done += self.do(self.agent.on_log(0, stream, tag, self.disk.read(stream)))
        return done

    def install(self, next_plan: Plan) -> list[Effect]:
        return self.do(self.agent.install(0, next_plan))


def test_a_site_begins_with_what_the_plan_gives_it() -> None:
    a, b, c = (Site(name, plan()) for name in SITES)
    assert list(a.agent.entries) == ["s"]
    assert [role.operators for role in a.agent.fragments] == [("f",)]
    assert list(a.agent.egresses) == ["s", "f"]
    assert list(b.agent.ingresses) == ["f"]
    assert [role.operators for role in b.agent.fragments] == [("g",)]
    parts = (c.agent.entries, c.agent.ingresses, c.agent.fragments, c.agent.egresses)
    assert not any(parts)


@pytest.mark.parametrize("stale", [plan(1, "b"), plan(2, "a"), plan(2, "b")])
def test_of_two_plans_the_later_epoch_then_the_greater_coordinator_wins(stale: Plan) -> None:
    site = Site("c", plan(1, "a"))
    site.install(plan(2, "b", g="c"))
    assert site.install(stale) == []
    assert site.agent.version == (2, "b")
    assert site.install(plan(2, "c"))


def test_two_coordinators_plans_end_in_the_same_whatever_comes_first() -> None:
    rivals = [plan(2, "a", g="c"), plan(2, "b", g="bc")]
    sites = [Site("b", plan()), Site("b", plan())]
    for site, order in zip(sites, (rivals, rivals[::-1]), strict=True):
        for rival in order:
            site.install(rival)
    assert sites[0].agent.plan == sites[1].agent.plan == rivals[1]
    assert list(sites[0].agent.fragments) == list(sites[1].agent.fragments)


def test_a_new_plan_begins_what_is_new_and_stops_what_left() -> None:
    site = Site("b", plan())
    site.disk.stream("out/g")
    effects = site.install(plan(2, f="ab", g="c"))
    assert [role.operators for role in site.agent.fragments] == [("f",)]
    assert list(site.agent.ingresses) == ["s"]
    assert [(e.stream, e.source) for e in opened(effects)] == [("s", "a")]
    assert [(e.stream, e.source) for e in effects if isinstance(e, CloseBranch)] == [("f", "a")]
    assert [e.stream for e in effects if isinstance(e, Drop)] == ["out/g", "in/f"]


def test_what_stays_is_not_touched() -> None:
    site = Site("b", plan())
    (fragment,) = site.agent.fragments.values()
    effects = site.install(plan(2, f="ac"))
    assert list(site.agent.fragments.values()) == [fragment]
    assert [(e.stream, e.source) for e in opened(effects)] == [("f", "c")]


def test_a_plan_survives_in_the_log_and_only_the_last_is_kept() -> None:
    site = Site("c", plan())
    site.install(plan(2, g="c"))
    site.install(plan(3, g="bc"))
    assert len(site.disk.read("plan")[1]) == 1
    site.restart()
    assert site.agent.version == (3, "a")
    assert list(site.agent.ingresses) == ["f"]


def test_a_plan_that_is_later_than_the_log_wins_at_the_start() -> None:
    site = Site("c", plan())
    site.install(plan(2))
    site.plan = plan(5, g="c")
    site.restart()
    assert site.agent.version == (5, "a")


@pytest.mark.parametrize("message", [Heartbeat((1, "a")), Needed("s", 0, 0, (1, "a"))])
def test_who_follows_an_earlier_plan_is_offered_this_one(message: Heartbeat | Needed) -> None:
    site = Site("a", plan(2))
    assert site.agent.on_message(0, "z", message) == [Send("z", PlanOffer(plan(2)))]
    assert site.agent.on_message(0, "z", msgspec.structs.replace(message, version=(2, "a"))) == []


def test_an_offered_plan_is_installed() -> None:
    site = Site("c", plan())
    site.do(site.agent.on_message(0, "a", PlanOffer(plan(2, g="c"))))
    assert list(site.agent.ingresses) == ["f"]


def test_a_plan_that_is_offered_before_the_log_has_been_read_is_kept_behind_it() -> None:
    site = Site("c", plan())
    site.install(plan(2))
    agent = Agent(GRAPH, "c", SITES, 1, Settings(), lambda o, e: ArrowEngine(GRAPH, o, e, "c"), 2)
    reads = [effect for effect in agent.start(0, plan()) if isinstance(effect, ReadLog)]
    early = agent.on_message(0, "a", PlanOffer(plan(3)))
    late = [e for read in reads for e in agent.on_log(0, read.stream, read.tag, site.disk.read(read.stream))]
    kept = [e.position for e in (*early, *late) if isinstance(e, Append) and e.stream == "plan"]
    assert kept == [site.disk.stream("plan").end]


def test_a_stream_that_is_dropped_and_begun_again_is_another_generation() -> None:
    """Else a reader that missed the plan between takes its old position for one of the new log."""
    site = Site("a", plan())
    before = site.agent.egresses["f"].writer.generation
    site.install(plan(2, f="c"))
    site.install(plan(3))
    assert site.agent.egresses["f"].writer.generation != before


def test_a_source_that_does_not_enter_here_is_refused_aloud() -> None:
    site = Site("b", plan())
    submit = Submit("s", "p", 0, None, END, BEGINNING, (0, BEGINNING), 0)
    (event,) = reported(site.agent.on_message(0, "p", submit))
    assert isinstance(event, Rejected)
    assert (event.sender, event.at) == ("p", "b")
    assert "source 's' does not enter here" in event.reason


def test_a_source_that_is_just_beginning_here_is_not_refused() -> None:
    agent = Agent(GRAPH, "a", SITES, 1, Settings(), lambda o, e: ArrowEngine(GRAPH, o, e, "a"), 1)
    submit = Submit("s", "p", 0, None, END, BEGINNING, (0, BEGINNING), 0)
    agent.start(0, plan())
    assert agent.on_message(0, "p", submit) == [], "its plan may be a later one, in its log"
    agent.on_log(0, "plan", ("plan",), (0, ()))
    assert agent.on_message(0, "p", submit) == []


def test_a_tick_sends_heartbeats_and_needs_and_sets_the_next() -> None:
    site = Site("b", plan())
    effects = site.agent.on_timer(5 * SECOND, "tick")
    assert [e.to for e in effects if isinstance(e, Send) and isinstance(e.message, Heartbeat)] == ["a", "c"]
    assert [n.stream for n in sent(effects, Needed)] == ["f"]
    assert effects[-1] == SetTimer("tick", SECOND)


def test_entry_points_tell_each_other_what_they_need() -> None:
    site = Site("a", plan(entries="ab"))
    needs = [
        e.to
        for e in site.agent.on_timer(SECOND, "tick")
        if isinstance(e, Send) and isinstance(e.message, Needed)
    ]
    assert needs == ["b", "b"], "as an entry point, and as a consumer of its log"
