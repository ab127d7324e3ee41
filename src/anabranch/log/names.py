"""How the streams of a site log and the subjects of a site's server are called.

>>> stream("netwatch", "out/alerts"), subject("netwatch", "out/alerts")
('netwatch-out-alerts', 'log.netwatch.out.alerts')
>>> client("netwatch", "alerts@paris"), client("netwatch", "new alerts.txt")
('client.netwatch.alerts@paris', 'client.netwatch.new%20alerts%2Etxt')
"""

from __future__ import annotations

from urllib.parse import quote


def stream(query: str, name: str) -> str:
    """The JetStream stream that holds stream ``name`` (in/..., out/..., plan) of a site log."""
    return f"{query}-{name.replace('/', '-')}"


def subject(query: str, name: str) -> str:
    """Where records of that stream are published."""
    return f"log.{query}.{name.replace('/', '.')}"


def inbox(query: str, site: str) -> str:
    """On the server of ``site``: what other nodes say to it."""
    return f"inbox.{query}.{site}"


def status(query: str, site: str) -> str:
    """On the server of ``site``: who asks here is told how the site stands."""
    return f"status.{query}.{site}"


def client(query: str, name: str) -> str:
    """On any site's server: what that site says to a producer or an application."""
    return f"client.{query}.{_token(name)}"


def engine(query: str) -> str:
    """On the site's own server: what an engine in a process of its own hands to the agent."""
    return f"engine.{query}"


def _token(name: str) -> str:
    """Any name as one token of a subject."""
    return quote(name, safe="@/").replace(".", "%2E")
