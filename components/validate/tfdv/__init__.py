"""TFX's data validation within validate: statistics, a curated schema, drift against the model in service.

TensorFlow Data Validation runs on glibc 2.39 and newer only, so nothing here imports it but `engine`.
"""
