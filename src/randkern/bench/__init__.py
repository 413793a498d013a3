"""Benchmarks: one file each, run by ``randkern bench NAME``.

The functions behind the commands (:func:`.features.run`, :func:`.features.sweep`,
:func:`.accuracy.run`) return what is written to ``results.json`` and print nothing.
"""
