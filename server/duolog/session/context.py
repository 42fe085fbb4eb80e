"""What the parts of one call share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from duolog.personas import Persona
from duolog.session.config import SessionConfig
from duolog.session.engines import CallOptions, Engines
from duolog.session.items import Items
from duolog.session.outbox import Outbox
from duolog.session.playing import Playbacks


@dataclass(slots=True)
class CallContext:
    """One call's own state. `config` is replaced by updates, the rest stays."""

    session_id: str
    persona: Persona
    config: SessionConfig
    engines: Engines
    options: CallOptions
    outbox: Outbox
    items: Items
    playbacks: Playbacks


def new_id(kind: str) -> str:
    """A fresh id such as `item_…`; collisions are beyond reach."""
    return f"{kind}_{uuid.uuid4().hex[:24]}"
