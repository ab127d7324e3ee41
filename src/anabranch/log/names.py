"""How the streams of a site log and the subjects of a site's server are called.

>>> stream("netwatch", "out/alerts"), subject("netwatch", "out/alerts")
('netwatch-out-alerts', 'log.netwatch.out.alerts')
>>> client("netwatch", "alerts@paris"), client("netwatch", "new alerts.txt")
('client.netwatch.alerts@paris', 'client.netwatch.new%20alerts%2Etxt')
>>> inbox("netwatch", "paris", "producer/load")
'inbox.netwatch.paris.producer/load'
"""

from __future__ import annotations

from urllib.parse import quote


def stream(query: str, name: str) -> str:
    """The JetStream stream that holds stream ``name`` (in/..., out/..., plan) of a site log."""
    return f"{query}-{name.replace('/', '-')}"


def subject(query: str, name: str) -> str:
    """Where records of that stream are published."""
    return f"log.{query}.{name.replace('/', '.')}"


OPERATOR = "@operator"
"""Who installs plans by hand. No site is called so."""
CLIENT = "@client"
"""Applications and producers together."""


def inbox(query: str, site: str, sender: str | None = None) -> str:
    """On the server of ``site``: what ``sender`` says to it; None: what anybody says."""
    return f"inbox.{query}.{site}.{'*' if sender is None else _token(sender)}"


def gate(query: str, site: str) -> str:
    """On the server of ``site``: who may not read its log as he likes asks here to be let in."""
    return f"gate.{query}.{site}"


def replies(name: str) -> str:
    """What the subjects begin with to which answers for this node are sent."""
    return f"_INBOX.{_token(name)}"


def user(name: str) -> str:
    """How a node, CLIENT or OPERATOR is called in its certificate."""
    return f"anabranch:{name}"


def status(query: str, site: str) -> str:
    """On the server of ``site``: who asks here is told how the site stands."""
    return f"status.{query}.{site}"


def client(query: str, name: str) -> str:
    """On any site's server: what that site says to a producer or an application."""
    return f"client.{query}.{_token(name)}"


def engine(query: str) -> str:
    """On the site's own server: what an engine in a process of its own hands to the agent."""
    return f"engine.{query}"


def fetched(query: str) -> str:
    """On the site's own server: what Spark reads for a source of the site's."""
    return f"fetched.{query}"


def _token(name: str) -> str:
    """Any name as one token of a subject."""
    return quote(name, safe="@/").replace(".", "%2E")
