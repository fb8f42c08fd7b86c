"""TensorFlow Data Validation: statistics, a schema, and drift from the data of the model in service.

TFDV needs glibc 2.39 or newer, so only `engine` imports it.
"""
