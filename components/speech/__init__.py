"""The domain that steps share. It imports no step, no kfp and no Beam."""
