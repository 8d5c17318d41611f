"""Runs host-side work in parallel, in local processes or as jobs on a shared file system."""
