"""``python -m slotgate.doctor``."""

from __future__ import annotations

import sys

from slotgate.doctor.command import main

sys.exit(main(sys.argv[1:]))
