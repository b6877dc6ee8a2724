from twisted.application.service import ServiceMaker

serviceMaker = ServiceMaker(  # type: ignore[no-untyped-call]
    "slotgate", "slotgate.tap", "Unlimited llama.cpp slots that survive restarts.", "slotgate"
)
