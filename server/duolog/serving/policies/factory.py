"""Makes the policy that the settings name."""

from __future__ import annotations

from enum import StrEnum

from duolog.serving.policies.admission import AdmissionPolicy, PolicyOptions
from duolog.serving.policies.direct import DirectPolicy
from duolog.serving.policies.one_batch import OneBatchAtATime
from duolog.serving.policies.slo import SloPolicy
from duolog.serving.policies.target_size import TargetSizePolicy
from duolog.serving.policies.token_window import TokenWindowPolicy
from duolog.serving.predictor import ServiceTimePredictor


class PolicyName(StrEnum):
    DIRECT = "direct"
    TARGET_SIZE = "target_size"
    TOKEN_WINDOW = "token_window"
    SLO = "slo"


def make_policy(name: PolicyName, options: PolicyOptions, predictor: ServiceTimePredictor) -> AdmissionPolicy:
    """The policy for one batcher, which must be given the same `predictor`."""
    match name:
        case PolicyName.DIRECT:
            policy: AdmissionPolicy = DirectPolicy()
        case PolicyName.TARGET_SIZE:
            policy = TargetSizePolicy(options)
        case PolicyName.TOKEN_WINDOW:
            policy = TokenWindowPolicy(options, predictor)
        case PolicyName.SLO:
            policy = SloPolicy(options, predictor)
    return OneBatchAtATime(policy, options) if options.one_batch_at_a_time else policy
