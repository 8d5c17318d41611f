"""Executors for host-side parallel work: local processes, jobs on a shared file system, a Dask cluster."""
