"""
The commands that talk to a gateway that runs: ``slotgate sessions`` and ``slotgate top``.
"""
