"""Who may do what at a site's log server, as lines of its configuration.

Everybody shows a certificate of the deployment's authority, and is who that says. The site itself is in an
account that holds the logs. Everybody else is in another one, which holds nothing: through it the other sites
read egress streams and say what they have to say, each in its own name, and clients alike. What is not listed
here is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from anabranch.graph import Graph
from anabranch.log import names
from anabranch.log.connection import Tls
from anabranch.site.gate import egress

OWN, OTHERS = "SITE", "OTHERS"


def configuration(graph: Graph, site: str, sites: Sequence[str], tls: Tls) -> str:
    """Of the server of ``site``; ``tls``: whose files are the site's, on the server's host."""
    query = graph.name
    readable = [
        *(f"$JS.API.DIRECT.GET.{stream}" for stream in egress(graph)),
        *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*" for stream in egress(graph)),
    ]
    asked = [names.gate(query, site), names.status(query, site)]
    inbox = names.inbox(query, site)
    told = f"client.{query}.>"
    peers = [name for name in sites if name != site]
    users = [_user(peer, [*readable, *asked, names.inbox(query, site, peer)]) for peer in peers]
    mine = [names.inbox(query, site, name) for name in (*sites, names.OPERATOR)]
    users += [
        _user(names.CLIENT, [*readable, *asked, inbox], mine, told),
        _user(names.OPERATOR, [names.status(query, site), names.inbox(query, site, names.OPERATOR)]),
    ]
    exports = [
        *(f"{{ service: {_text(each)}, response_type: stream, accounts: [{OTHERS}] }}" for each in readable),
        *(f"{{ service: {_text(each)}, accounts: [{OTHERS}] }}" for each in (*asked, inbox)),
        f"{{ stream: {_text(told)}, accounts: [{OTHERS}] }}",
    ]
    imports = [
        *(f"{{ service: {{ account: {OWN}, subject: {_text(s)} }} }}" for s in (*readable, *asked, inbox)),
        f"{{ stream: {{ account: {OWN}, subject: {_text(told)} }} }}",
    ]
    # At this level the server tells of every connection it has refused; of messages it tells at none.
    return f"""\
debug: true
tls {{
  cert_file: {_text(tls.certificate)}
  key_file: {_text(tls.key)}
  ca_file: {_text(tls.ca)}
  min_version: "1.3"
  verify_and_map: true
  timeout: 3
}}
accounts {{
  {OWN} {{
    jetstream: enabled
    users: [ {{ user: {_text(names.user(site))} }} ]
    exports: [
{_lines(exports)}
    ]
  }}
  {OTHERS} {{
    users: [
{_lines(users)}
    ]
    imports: [
{_lines(imports)}
    ]
  }}
}}
"""


def _user(name: str, publish: list[str], never: Sequence[str] = (), hears: str = "") -> str:
    """One that publishes to these and hears answers, and besides what ``hears`` says."""
    allow = [f"{names.replies(name)}.>", *([hears] if hears else [])]
    return (
        f"{{ user: {_text(names.user(name))}, permissions: {{ "
        f"publish: {{ allow: {json.dumps(publish)}, deny: {json.dumps(list(never))} }}, "
        f"subscribe: {{ allow: {json.dumps(allow)} }} }} }}"
    )


def _text(value: object) -> str:
    return json.dumps(str(value))


def _lines(entries: Iterable[str]) -> str:
    return "\n".join(f"      {entry}" for entry in entries)
