"""Data sets of openml.org, for those who have a network."""

from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError

from sklearn import datasets as sklearn_datasets

from randkern._extras import import_extra
from randkern.datasets.frames import dataset_from_frame
from randkern.datasets.record import Dataset


def fetch_openml(
    name: str,
    version: int | str = "active",
    *,
    target: str | None = None,
    task: str | None = None,
    data_home: str | Path | None = None,
) -> Dataset:
    """Download a table from openml.org (through scikit-learn, which caches it).

    Parameters
    ----------
    name : str
        As openml.org calls it, such as ``"adult"``.
    version : int or "active", default="active"
        Give a number for a result that stays the same.
    target : str, optional
        The column to predict; by default the one that openml.org states.
    task : {"classification", "regression"}, optional
        By default inferred, see `randkern.datasets.load_dataset`.
    data_home : str or Path, optional
        Where to cache; by default scikit-learn's data folder.

    Returns
    -------
    Dataset
        ``X_train`` a pandas DataFrame, without a test split.

    Raises
    ------
    ConnectionError
        Where openml.org cannot be reached.
    ValueError
        Where it knows no such data set, version or target.
    ImportError
        Where pandas is not installed.

    Examples
    --------
    >>> fetch_openml("adult", version=2).X_train.shape  # doctest: +SKIP
    (48842, 14)
    """
    import_extra("pandas", "Fetching from openml.org", "data")
    try:
        bunch = sklearn_datasets.fetch_openml(
            name,
            version=version,
            as_frame=True,
            data_home=None if data_home is None else str(data_home),
        )
    # HTTPError and time-outs are OSErrors too.
    except (URLError, HTTPException, OSError) as error:
        raise ConnectionError(
            f"openml.org could not be reached for {name!r} ({error}); check the "
            f"network, or load a file: load_dataset('FILE.csv', target=...)"
        ) from error
    if target is None and len(bunch.target_names) == 1:
        target = str(bunch.target_names[0])
    return dataset_from_frame(
        bunch.frame, target, name=f"openml:{name}", source=f"openml:{name}", task=task
    )
