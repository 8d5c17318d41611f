"""The workers of a Dask scheduler, for preparation, counting and scoring: `--scheduler=tcp://HOST:PORT`."""

CLUSTER = 'dask_cluster:DaskCluster'  # see `cli.scheduler.use`
