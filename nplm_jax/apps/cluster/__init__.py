"""Prepares, counts and scores texts on a Dask cluster (`--scheduler=tcp://HOST:PORT`)."""

CLUSTER = 'dask_cluster:DaskCluster'  # see `cli.scheduler.use`
