"""The domain that steps share. It imports no step and no kfp; Beam in one module that steps import late."""
