"""Time decides no test: what another program takes must not fail an example of hypothesis."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("slotgate", deadline=None)
settings.load_profile("slotgate")
