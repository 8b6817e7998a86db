"""Runs one command inside a node: ``python enter.py HOLDER FOLDER COMMAND...`` (used by cluster.local, as a script).

``nsenter`` does not handle signals as needed: Ctrl-C ends it although its command wanted to handle that, and a signal
sent to it does not reach the command. This script passes signals on. Signals from the terminal reach the command by
themselves. ``kill -9`` of this script kills the command too, and the exit status or fatal signal is the command's own.
It imports the standard library only, and starts in 20 ms.
"""

import ctypes
import os
import signal
import sys

NAMESPACES = ("net", "uts", "ipc", "pid_for_children", "mnt")  # mnt last: afterwards /proc is the node's own
PR_SET_PDEATHSIG = 1
PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
NOT_FOUND = 127  # what a shell returns for a command that cannot be run


def join(libc: ctypes.CDLL, holder: int) -> None:
    """Move this process (and, for process ids, its children) into the namespaces of process ``holder``.

    Raises:
        OSError: The namespaces cannot be entered; the process may be gone.
    """
    for name in NAMESPACES:
        with open(f"/proc/{holder}/ns/{name}") as namespace:
            if libc.setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter the {name} namespace of process {holder}")


def become(libc: ctypes.CDLL, folder: str, command: list[str]) -> None:
    """In the child: execute the command. Never returns.

    Args:
        libc: The C library.
        folder: The working folder of the command.
        command: The command and its arguments.
    """
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the command does not outlive the process that stands in for it
        signal.signal(signal.SIGINT, signal.default_int_handler)  # where a shell started us with Ctrl-C ignored
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {*PASSED_ON, signal.SIGCHLD})
        os.chdir(folder)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot run {command[0]} in {folder}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(NOT_FOUND)


def attend(child: int) -> int:
    """Wait for the command, pass signals on, and return its wait status."""
    while True:
        received = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
        if received.si_signo == signal.SIGCHLD:
            finished, status = os.waitpid(child, os.WNOHANG)
            if finished:
                return status
        elif received.si_pid != 0:  # 0: from the terminal, so the command has got it already
            os.kill(child, received.si_signo)


def main(holder: int, folder: str, command: list[str]) -> int:
    """Run a command in a node. Return its exit status, or end by the signal that ended it.

    Args:
        holder: Process id of the node's holder.
        folder: The working folder of the command.
        command: The command and its arguments.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        join(libc, holder)
        signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
        child = os.fork()
    except OSError as error:  # the kernel says "out of memory" for a node that has just been killed
        print(f"cannot run {command[0]}: the node cannot be entered, it may be gone ({error})", file=sys.stderr)
        return NOT_FOUND
    if child == 0:
        become(libc, folder, command)
    status = os.waitstatus_to_exitcode(attend(child))
    if status < 0:  # end by the same signal, so that the waiting process sees it
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
