#!/usr/bin/env bash
# A real SLURM on loopback, for tests: two nodes of four pretended GPUs each, nothing outside DIR. Debian's packages, as root.
#   slurm_loopback.sh install             # slurmctld, slurmd, munge by apt where they are missing; 77 where they cannot be had
#   slurm_loopback.sh start DIR           # again: what runs already is left as it is; prints DIR/slurm.conf
#   slurm_loopback.sh start DIR --accounting      # with slurmdbd over a MariaDB of its own, where both are installed
#   slurm_loopback.sh controller DIR down|up|lost|mend # slurmctld alone: ended, started again, or started having forgotten all jobs; GPUs counted anew
#   slurm_loopback.sh stop DIR            # again: nothing to do
# Exit code 77: this machine cannot have it, and the last line says why.
set -euo pipefail

PACKAGES=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge)
GPUS_PER_NODE=4

cannot() { echo "no SLURM on loopback: $*" >&2; exit 77; }
has() { command -v "$1" >/dev/null; }

needs_root() { [ "$(id -u)" = 0 ] || cannot "its daemons need root"; }

is_installed() { has slurmctld && has slurmd && has sbatch && has munged; }

install() {
    is_installed && return
    needs_root
    has apt-get || cannot "no apt, and no slurmctld on the path"
    local log
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    # Where the first attempt fails the lists of packages may be missing or old.
    apt-get install -y --no-install-recommends "${PACKAGES[@]}" >"$log" 2>&1 ||
        { apt-get update >>"$log" 2>&1 && apt-get install -y --no-install-recommends "${PACKAGES[@]}" >>"$log" 2>&1; } ||
        cannot "apt has no ${PACKAGES[*]}: $(grep -m 1 '^E: ' "$log" || tail -n 1 "$log")"
    rm -f "$log"
    is_installed || cannot "apt installed ${PACKAGES[*]}, and the daemons are not on the path"
}

# Ports that no other SLURM of this machine has: they follow the folder.
ports() {
    local base=$((20000 + $(cksum <<<"$DIR" | cut -d ' ' -f 1) % 10000))
    CONTROLLER=$base NODES="$((base + 1))-$((base + 2))" DATABASE=$((base + 3)) MARIADB=$((base + 4))
}

configure() {
    local host
    host=$(hostname -s)
    mkdir -p "$DIR"/{state,spool,log,run,munge,dev}
    getent hosts "$host" >/dev/null || echo "127.0.0.1 $host" >>/etc/hosts
    # slurmd takes character devices only: these are null devices under a GPU's name.
    for ((at = 0; at < GPUS_PER_NODE; at++)); do
        [ -e "$DIR/dev/nvidia$at" ] || mknod "$DIR/dev/nvidia$at" c 1 3 || cannot "mknod is not allowed here"
    done
    if [ ! -s "$DIR/munge/munge.key" ]; then
        (umask 077; head -c 1024 /dev/urandom >"$DIR/munge/munge.key")
    fi
    local accounting="AccountingStorageType=accounting_storage/none"
    if [ "$ACCOUNTING" = 1 ]; then
        accounting="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$DATABASE
AccountingStoragePass=$DIR/munge/munge.socket
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux"
    fi
    cat >"$DIR/slurm.conf" <<CONF
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$DIR/munge/munge.socket
SlurmctldPort=$CONTROLLER
StateSaveLocation=$DIR/state
SlurmdSpoolDir=$DIR/spool/%n
SlurmctldPidFile=$DIR/run/slurmctld.pid
SlurmdPidFile=$DIR/run/slurmd-%n.pid
SlurmctldLogFile=$DIR/log/slurmctld.log
SlurmdLogFile=$DIR/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=10
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=200000,batch_sched_delay=0,requeue_delay=0
ReturnToService=2
KillWait=3
MinJobAge=${MIN_JOB_AGE:-300}
MessageTimeout=${MESSAGE_TIMEOUT:-10}
InactiveLimit=0
$accounting
JobCompType=jobcomp/filetxt
JobCompLoc=$DIR/log/jobcomp.log
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$NODES] CPUs=64 RealMemory=64000 Gres=gpu:h100:$GPUS_PER_NODE State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL Default=NO MaxTime=10 State=UP
CONF
    cat >"$DIR/gres.conf" <<CONF
AutoDetect=off
NodeName=n[1-2] Name=gpu Type=h100 File=$DIR/dev/nvidia[0-$((GPUS_PER_NODE - 1))]
CONF
}

is_alive() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }

start_munge() {
    local m=$DIR/munge
    is_alive "$m/munge.pid" || munged --force --key-file="$m/munge.key" --socket="$m/munge.socket" --pid-file="$m/munge.pid" \
        --log-file="$m/munge.log" --seed-file="$m/munge.seed"
}

start_accounting() {
    for program in slurmdbd mariadbd mariadb-install-db; do
        has "$program" || cannot "accounting needs slurmdbd and mariadb-server: no $program"
    done
    local data=$DIR/mariadb
    if [ ! -d "$data/mysql" ]; then
        mariadb-install-db --datadir="$data" --user=root --auth-root-authentication-method=normal --skip-test-db >"$DIR/log/mariadb-install.log" 2>&1
    fi
    if ! is_alive "$DIR/run/mariadb.pid"; then
        mariadbd --no-defaults --datadir="$data" --user=root --port="$MARIADB" --bind-address=127.0.0.1 --socket="$DIR/run/mariadb.sock" \
            --pid-file="$DIR/run/mariadb.pid" >"$DIR/log/mariadb.log" 2>&1 </dev/null &
        wait_for mariadb-admin --no-defaults --socket="$DIR/run/mariadb.sock" --user=root ping
        mariadb --no-defaults --socket="$DIR/run/mariadb.sock" --user=root \
            -e "CREATE USER IF NOT EXISTS slurm@localhost; CREATE USER IF NOT EXISTS slurm@'127.0.0.1'; GRANT ALL ON *.* TO slurm@localhost; GRANT ALL ON *.* TO slurm@'127.0.0.1';"
    fi
    (umask 077; cat >"$DIR/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$DIR/munge/munge.socket
DbdHost=$(hostname -s)
DbdAddr=127.0.0.1
DbdPort=$DATABASE
SlurmUser=root
LogFile=$DIR/log/slurmdbd.log
PidFile=$DIR/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$MARIADB
StorageUser=slurm
StorageLoc=slurm_acct_db
CONF
    )
    if ! is_alive "$DIR/run/slurmdbd.pid"; then
        SLURM_CONF=$DIR/slurm.conf slurmdbd
        wait_for bash -c "</dev/tcp/127.0.0.1/$DATABASE"
    fi
}

# wait_for COMMAND...: until it succeeds, a minute at most.
wait_for() {
    local until=$((SECONDS + 60))
    while [ "$SECONDS" -lt "$until" ]; do
        SLURM_CONF=$DIR/slurm.conf timeout 10 "$@" >/dev/null 2>&1 </dev/null && return
        sleep 0.1
    done
    echo "did not come up in time: $*; see $DIR/log" >&2
    return 1
}

start_controller() { is_alive "$DIR/run/slurmctld.pid" || slurmctld "$@" -f "$DIR/slurm.conf"; }

start_nodes() {
    for node in n1 n2; do
        is_alive "$DIR/run/slurmd-$node.pid" || slurmd -f "$DIR/slurm.conf" -N "$node"
    done
}

# Whatever state a controller that was started again finds them in.
wait_for_nodes() {
    export SLURM_CONF=$DIR/slurm.conf
    for _ in $(seq 300); do
        both_idle 2>/dev/null && takes_jobs && return
        sleep 0.1
    done
    echo "the nodes did not come up; see $DIR/log" >&2
    return 1
}

# Until its nodes have told it of their GPUs a controller refuses who asks for one.
takes_jobs() { sbatch --test-only --gres=gpu:1 --wrap true >/dev/null 2>&1; }

both_idle() { [ "$(sinfo --noheader --Node --partition=gpu --format=%T | grep -cE '^(idle|mixed|allocated|completing)$')" = 2 ]; }

start() {
    is_installed || cannot "slurmctld, slurmd, sbatch and munged are not all installed: $0 install"
    needs_root
    configure
    start_munge
    [ "$ACCOUNTING" = 0 ] || start_accounting
    start_controller
    start_nodes
    wait_for_nodes && echo "$DIR/slurm.conf"
}

# end PIDFILE: asks, and after five seconds insists.
end() {
    is_alive "$1" || return 0
    local pid
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 50); do
        kill -0 "$pid" 2>/dev/null && [ "$(ps -o stat= -p "$pid" | cut -c 1)" != Z ] || return 0
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
}

controller() {
    case $1 in
    down) end "$DIR/run/slurmctld.pid" ;;
    up) start_controller; wait_for_nodes ;;
    mend) SLURM_CONF=$DIR/slurm.conf scontrol reconfigure; wait_for_nodes ;;
    lost) end "$DIR/run/slurmctld.pid"; start_controller -c; wait_for_nodes ;;
    *) echo "controller DIR down|up|lost|mend" >&2; exit 2 ;;
    esac
}

stop() {
    # Jobs first: what slurmd started is not ended with it.
    if is_alive "$DIR/run/slurmctld.pid"; then
        SLURM_CONF=$DIR/slurm.conf timeout 20 scancel --user=root --full 2>/dev/null || true
        for _ in $(seq 50); do
            [ -n "$(SLURM_CONF=$DIR/slurm.conf timeout 10 squeue --noheader 2>/dev/null)" ] || break
            sleep 0.2
        done
    fi
    for daemon in slurmd-n1 slurmd-n2 slurmctld slurmdbd mariadb; do end "$DIR/run/$daemon.pid"; done
    end "$DIR/munge/munge.pid"
}

usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }

[ $# -ge 1 ] || usage
[ "$1" = install ] && install && exit
[ $# -ge 2 ] || usage
DIR=$(realpath -m "$2")
ACCOUNTING=0
[ "${3:-}" != --accounting ] || ACCOUNTING=1
ports
case $1 in
start) start ;;
controller) controller "${3:-}" ;;
stop) stop ;;
*) usage ;;
esac
