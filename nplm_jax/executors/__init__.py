"""Executors for host-side parallel work: local processes, and jobs on a shared file system."""
