"""Aggregations of the server. To add one, write its file and name its class here."""

from fedtext.aggregations.attention import Attention
from fedtext.aggregations.base import Aggregation, IndividualAggregation, SumAggregation
from fedtext.aggregations.centered_clipping import CenteredClipping
from fedtext.aggregations.geometric_median import GeometricMedian
from fedtext.aggregations.krum import Krum
from fedtext.aggregations.lora import LoRA
from fedtext.aggregations.mean import Mean
from fedtext.aggregations.median import Median
from fedtext.aggregations.norm_bounded import NormBounded
from fedtext.aggregations.trimmed_mean import TrimmedMean

AGGREGATIONS: dict[str, type[Aggregation]] = {
    "mean": Mean,
    "median": Median,
    "trimmed_mean": TrimmedMean,
    "norm_bounded": NormBounded,
    "geometric_median": GeometricMedian,
    "centered_clipping": CenteredClipping,
    "krum": Krum,
    "attention": Attention,
    "lora": LoRA,
}

__all__ = ["AGGREGATIONS", "Aggregation", "IndividualAggregation", "SumAggregation"]
