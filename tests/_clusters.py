"""Dask clusters of two processes, and what happens to them."""

import os
import signal
import threading
import warnings
from contextlib import contextmanager

import pytest

distributed = pytest.importorskip("distributed")


@contextmanager
def two_workers(env=None):
    """Return the client of a cluster, whose workers have variables of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            env=env or {},
        )
    with cluster, distributed.Client(cluster) as client:
        yield client


class WorkerKiller:
    """A solver's callback that kills a worker once, in the middle of a fit."""

    def __init__(self, client):
        self.client = client
        self.killed = None

    def __call__(self, progress):
        if progress.iteration == 3 and self.killed is None:
            workers = self.client.scheduler_info(n_workers=-1)["workers"]
            self.killed = self.client.run(os.getpid)[next(iter(workers))]
            threading.Timer(0.02, os.kill, (self.killed, signal.SIGKILL)).start()
        return False
