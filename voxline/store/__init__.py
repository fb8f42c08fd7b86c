"""Files and objects, on this machine or in a bucket; the cache of step outputs."""
