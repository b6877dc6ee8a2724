"""``python -m slotgate.doctor``."""

from __future__ import annotations

import sys

from slotgate.commands.output import told
from slotgate.doctor.command import main

sys.exit(told(lambda: main(sys.argv[1:])))
