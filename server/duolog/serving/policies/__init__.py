"""Which waiting requests may enter the engine now. Pure: a policy sees the queue, what is in flight and the time."""

from duolog.serving.policies.admission import (
    ENGINE_PRIORITY,
    AdmissionPolicy,
    Decision,
    Drop,
    DropReason,
    FlightRequest,
    PolicyOptions,
    QueuedRequest,
    RequestClass,
)
from duolog.serving.policies.direct import DirectPolicy

__all__ = [
    "ENGINE_PRIORITY",
    "AdmissionPolicy",
    "Decision",
    "DirectPolicy",
    "Drop",
    "DropReason",
    "FlightRequest",
    "PolicyOptions",
    "QueuedRequest",
    "RequestClass",
]
