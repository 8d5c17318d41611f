#!/usr/bin/env bash
# A SLURM of one node, this machine, that touches nothing outside one folder but the packages it installs.
#   tools/slurm_node.sh start DIR    installs slurm-wlm and munge if missing (Debian, Ubuntu), starts, waits until idle
#   tools/slurm_node.sh stop DIR     ends what start began
# Then SLURM_CONF=DIR/slurm.conf makes sbatch, srun and squeue mean this one. Needs root and a new DIR; no systemd.
set -euo pipefail
verb=${1:?start or stop} dir=$(realpath -m "${2:?a folder}")
export SLURM_CONF=$dir/slurm.conf

stop() {
  for name in slurmd slurmctld munged; do
    if [ -s "$dir/$name.pid" ]; then kill "$(cat "$dir/$name.pid")" 2>/dev/null || true; fi
  done
}

start() {
  [ "$(id -u)" = 0 ] || { echo "must be root: it installs packages and starts SLURM's daemons" >&2; exit 2; }
  if ! { command -v slurmctld && command -v slurmd && command -v munged; } >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends slurm-wlm munge >/dev/null
  fi
  mkdir -p "$dir/state" "$dir/spool"
  head -c 1024 /dev/urandom >"$dir/munge.key"
  chmod 600 "$dir/munge.key"
  host=$(hostname -s) cpus=$(nproc)
  # A requeued job may start again after cred_expire seconds. No control groups: they may not be there.
  cat >"$SLURM_CONF" <<CONF
ClusterName=one
SlurmctldHost=$host(localhost)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=10
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=localhost CPUs=$cpus State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munged.pid" \
    --log-file="$dir/munged.log" --seed-file="$dir/munged.seed"
  slurmctld
  slurmd
  for _ in $(seq 60); do
    if sinfo --noheader --format=%T 2>/dev/null | grep -qx idle; then exit 0; fi
    sleep 1
  done
  echo "the node is not idle after a minute; its logs are in $dir" >&2
  tail -n 5 "$dir"/*.log >&2
  stop
  exit 1
}

case $verb in
start) start ;;
stop) stop ;;
*) echo "$verb: must be start or stop" >&2; exit 2 ;;
esac
