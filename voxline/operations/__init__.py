"""What a person does to stores, datasets and registries: purge, garbage collection, exports."""
