"""Distributed preparation, counting and scoring with Dask: `--scheduler=tcp://HOST:PORT`."""

CLUSTER = 'dask_cluster:DaskCluster'  # see `cli.scheduler.use`
