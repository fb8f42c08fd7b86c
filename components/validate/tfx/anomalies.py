"""Of which of our kinds an anomaly is; TFDV tells some eighty apart."""

from components.validate.tfx.examination import Kind

MISSING = ("SCHEMA_MISSING_COLUMN", "FEATURE_TYPE_LOW_FRACTION_PRESENT", "FEATURE_TYPE_LOW_NUMBER_PRESENT")
MISSING_MORE = ("FEATURE_TYPE_NOT_PRESENT", "FEATURE_TYPE_NO_VALUES", "FEATURE_TYPE_LOW_NUMBER_VALUES")
RANGE = ("FLOAT_TYPE_BIG_FLOAT", "FLOAT_TYPE_SMALL_FLOAT", "INT_TYPE_BIG_INT", "INT_TYPE_SMALL_INT")
NO_NUMBER = ("FLOAT_TYPE_HAS_NAN", "FLOAT_TYPE_HAS_INF")
VALUES = ("ENUM_TYPE_UNEXPECTED_STRING_VALUES", "ENUM_TYPE_INVALID_UTF8", "BOOL_TYPE_UNEXPECTED_STRING")
TYPES = ("UNEXPECTED_DATA_TYPE", "VALUE_NESTEDNESS_MISMATCH", "DOMAIN_INVALID_FOR_TYPE", "INVALID_FEATURE_SHAPE")
TYPE_WORDS = ("_NOT_STRING", "_NOT_INT", "_NOT_FLOAT", "_INT_EXPECTED", "_STRING_EXPECTED", "_NON_STRING", "_TYPE_NOW_")


def anomaly_kind(code: str) -> Kind:
    """
    >>> anomaly_kind("SCHEMA_MISSING_COLUMN"), anomaly_kind("FLOAT_TYPE_BIG_FLOAT")
    ('missing_features', 'out_of_range')
    >>> anomaly_kind("ENUM_TYPE_FLOAT_NOT_STRING"), anomaly_kind("FEATURE_TYPE_HIGH_UNIQUE")
    ('wrong_types', 'other_anomalies')
    """
    if code in MISSING or code in MISSING_MORE:
        return "missing_features"
    if code in RANGE or code in NO_NUMBER:
        return "out_of_range"
    if code in VALUES:
        return "unexpected_values"
    if code in TYPES or any(word in code for word in TYPE_WORDS):
        return "wrong_types"
    return "other_anomalies"
