"""Distributed preparation, counting and scoring of texts with Dask (`--scheduler=tcp://HOST:PORT`)."""

CLUSTER = 'dask_cluster:DaskCluster'  # see `cli.scheduler.use`
