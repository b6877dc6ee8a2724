from twisted.application.service import ServiceMaker

serviceMaker = ServiceMaker(
    "slotgate", "slotgate.tap", "Unlimited llama.cpp slots that survive restarts.", "slotgate"
)
