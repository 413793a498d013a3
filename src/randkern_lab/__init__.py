"""Published experiments and benchmarks: built on `randkern`, which never imports it.

An experiment or benchmark is one file, a script: its options, what it measures, and the
tables and the figure of the records (:mod:`randkern_lab.runner`).
"""
