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
from duolog.serving.policies.factory import PolicyName, make_policy
from duolog.serving.policies.slo import SloPolicy

__all__ = [
    "ENGINE_PRIORITY",
    "AdmissionPolicy",
    "Decision",
    "DirectPolicy",
    "Drop",
    "DropReason",
    "FlightRequest",
    "PolicyName",
    "PolicyOptions",
    "QueuedRequest",
    "RequestClass",
    "SloPolicy",
    "make_policy",
]
