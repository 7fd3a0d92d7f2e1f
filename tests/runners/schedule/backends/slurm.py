"""A Slurm of one node, started by hand: munged, slurmctld and slurmd of the Debian packages munge and slurm-wlm.

Needs no service, no accounting and no control groups; every file and both ports are its own.
"""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
PATIENCE_SECONDS = 60.0

_CONFIGURATION = """
ClusterName=rawls
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=main Nodes=ALL Default=YES
"""


def missing_programs() -> list[str]:
    """Those that are not installed; the daemons lie where only root looks."""
    return [name for name in PROGRAMS if _path(name) is None]


@contextmanager
def one_node(folder: Path) -> Iterator[dict[str, str]]:
    """Run a Slurm in this folder (of a short path); the environment in which its commands find it."""
    host, user = socket.gethostname().partition(".")[0], pwd.getpwuid(os.getuid()).pw_name
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    control_port, node_port = _free_ports(2)
    configuration = folder / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(host=host, user=user, folder=folder, control_port=control_port, node_port=node_port)
    )
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(os.urandom(128))
    folder.chmod(0o755)
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    daemons = [
        ["munged", "--foreground", "--force", *_munge_files(folder)],
        ["slurmctld", "-D", "-c"],
        ["slurmd", "-D", "-c"],
    ]
    with ExitStack() as stack:
        for command in daemons:
            stack.enter_context(_running(command, environment, folder))
            if command[0] == "munged":
                _wait_for(folder / "munge.socket")
        _wait_until_idle(environment, folder)
        try:
            yield environment
        finally:
            subprocess.run(["scancel", "--full", "--state=RUNNING", f"--user={user}"], env=environment, check=False)
            subprocess.run(["scancel", f"--user={user}"], env=environment, check=False)


@contextmanager
def _running(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[None]:
    with open(folder / f"{command[0]}.log", "wb") as log:
        daemon = subprocess.Popen(
            [str(_path(command[0])), *command[1:]], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        daemon.terminate()
        try:
            daemon.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def _wait_until_idle(environment: dict[str, str], folder: Path) -> None:
    """Until the node takes jobs."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        told = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], env=environment, capture_output=True, text=True, check=False
        )
        if told.stdout.strip() == "idle":
            return
        if time.monotonic() > deadline:
            logs = [f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in folder.glob("*.log")]
            raise TimeoutError("\n".join([f"Slurm does not start: {told.stdout}{told.stderr}", *logs]))
        time.sleep(0.1)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} does not appear")
        time.sleep(0.02)


def _munge_files(folder: Path) -> list[str]:
    kinds = {"socket": "socket", "key-file": "key", "log-file": "log", "pid-file": "pid", "seed-file": "seed"}
    return [f"--{option}={folder}/munge.{suffix}" for option, suffix in kinds.items()]


def _path(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
