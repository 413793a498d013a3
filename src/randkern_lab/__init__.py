"""Published experiments and benchmarks: built on `randkern`, which never imports it.

An experiment or benchmark is one file: a subclass of
:class:`randkern_lab.runner.Experiment` that defines its options, its cases, what is
measured for each, its tables and its figure. The runner does the rest.
"""
