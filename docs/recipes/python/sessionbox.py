"""A session of sessionbox for a harness in Python (3.9 or newer).

Copy this file; it needs the sessionbox program and nothing else.

    sessionbox.reconcile()                              # once, when the harness starts
    with sessionbox.Session.open("work") as s:          # this process owns it
        r = s.run(["npm", "test"], timeout=120)
        s.spawn(["npm", "run", "dev"])
    print(s.receipt)                                    # nothing is left, or it raised

When this process dies, however it dies, the session is closed by the guard or by the
next reconcile, with everything that ran in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import threading
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

PROGRAM = "sessionbox"
Json = Any


class SessionboxError(Exception):
    """A failure of sessionbox itself. A command that fails is none: look at its code."""

    def __init__(self, exit: int, error: Optional[Mapping[str, Json]] = None, answer: Json = None) -> None:
        error = error or {}
        super().__init__(error.get("message", f"sessionbox ended with {exit}"))
        self.exit = exit  # of the sessionbox program
        self.code: str = error.get("code", "internal")  # usage, not_found, held, closed, command, ...
        self.hint: Optional[str] = error.get("hint")  # what to do about it, for people
        self.retryable: bool = error.get("retryable", False)
        self.info: Json = error.get("info")  # with Held: the session, its owner and its tasks
        self.answer = answer  # what was printed all the same: close its receipts, reconcile its report


class Held(SessionboxError):
    """The session is another living owner's: see info["owner"] and info["tasks"]."""


class Gone(SessionboxError):
    """There is no such session, or it is closed."""


class CommandFailed(SessionboxError):
    """The command cannot be run (exit 126) or was not found (127)."""


class Survivors(SessionboxError):
    """Something survived the close: see answer[0]["survivors"]. Close again later."""


_KINDS = {"held": Held, "not_found": Gone, "closed": Gone, "command": CommandFailed, "survivors": Survivors}


def _failure(exit: int, error: Optional[Mapping[str, Json]], answer: Json = None) -> SessionboxError:
    return _KINDS.get((error or {}).get("code", ""), SessionboxError)(exit, error, answer)


def _split(stderr: str) -> tuple[Json, str]:
    """The last line of stderr that is sessionbox's, and stderr without it."""
    lines = stderr.split("\n")
    for i in range(len(lines) - 1, -1, -1):
        if lines[i].startswith('{"schema":'):
            try:
                line = json.loads(lines[i])
            except ValueError:
                continue  # the command's own
            if "error" in line or "ref" in line:
                return line, "\n".join(lines[:i] + lines[i + 1 :])
    return None, stderr


def _call(*args: str) -> Json:
    """A verb other than exec: its JSON answer."""
    # Files and not pipes: what a verb starts must not make us wait.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = subprocess.call([PROGRAM, "--json", *args], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        out.seek(0)
        err.seek(0)
        text, errors = out.read(), err.read().decode(errors="replace")
    answer = json.loads(text) if text.strip() else None
    if code == 0:
        return answer
    raise _failure(code, (_split(errors)[0] or {}).get("error"), answer)


def reconcile(dry_run: bool = False) -> Json:
    """Sets right what crashes left; says what was done and what is alive."""
    try:
        return _call("reconcile", *(["--dry-run"] if dry_run else []))
    except SessionboxError as e:
        if e.exit == 4 and e.answer:  # done, and something survived: it says what
            return e.answer
        raise


def ls() -> Json:
    return _call("ls")


@dataclass(frozen=True)
class Result:
    """How a command ended; code is 128+n when signal n did it."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool
    state: str
    leftovers: int  # processes that it left in the session
    ref: str  # SESSION/TASK
    task: int


class Running:
    """A command that runs. wait() for it, or abort() it from any thread."""

    def __init__(self, session: Session, args: Sequence[str], env: Optional[Mapping[str, str]], stdin: Optional[bytes], kill_after: float) -> None:
        self._session, self._kill_after = session, kill_after
        self._lock = threading.Lock()
        self._said: Optional[tuple[Json, str, str]] = None
        # A file never makes anybody wait, as a pipe does that a background child holds,
        # and nobody who writes to it dies of SIGPIPE.
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        given: Any = subprocess.DEVNULL
        if stdin is not None:
            given = tempfile.TemporaryFile()
            given.write(stdin)
            given.seek(0)
        self._process = subprocess.Popen(
            [PROGRAM, *args], stdin=given, stdout=self._out, stderr=self._err, env={**os.environ, **env} if env else None
        )

    def _outcome(self) -> tuple[Json, str, str]:
        """What exec said of the task, if it could, and its output, once it has ended."""
        with self._lock:
            if self._said is None:
                texts = []
                for f in (self._out, self._err):
                    f.seek(0)
                    texts.append(f.read().decode(errors="replace"))
                    f.close()
                line, stderr = _split(texts[1])
                self._said = (line, texts[0], stderr)
            return self._said

    def wait(self) -> Result:
        """Waits for the command, not for what it left. An exception that comes meanwhile
        (KeyboardInterrupt) ends the task."""
        try:
            code = self._process.wait()
        except BaseException:
            self.abort()
            raise
        line, stdout, stderr = self._outcome()
        if not line or "error" in line:
            raise _failure(code, (line or {}).get("error"))
        return Result(code, stdout, stderr, line["state"] == "timed_out", line["state"], line["leftovers"], line["ref"], line["task"])

    def abort(self) -> None:
        """Ends the task with everything it started."""
        if self._process.poll() is None:
            self._process.terminate()  # is handed on to the command
            try:
                self._process.wait(self._kill_after)
            except subprocess.TimeoutExpired:
                # Safe: the session's anchor ends the task with everything it started.
                self._process.kill()
                self._process.wait()
        line = self._outcome()[0]
        if line and line.get("leftovers"):
            self._session.kill(line["task"])  # what it had put in the background


class Session:
    def __init__(self, info: Json) -> None:
        self.id: str = info["id"]
        self.name: str = info.get("name", self.id)
        self.info = info  # as it was when it was opened
        self.generation: int = (info.get("owner") or {}).get("generation", 0)
        self.receipt: Json = None

    @classmethod
    def open(
        cls,
        name: Optional[str] = None,
        *,
        owner_pid: Optional[int] = -1,
        lease: Optional[float] = None,
        on_owner_exit: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        attach: bool = True,
        take_over: bool = False,
        flags: Sequence[str] = (),
    ) -> Session:
        """Opens a session that this process owns, or attaches to the open one of that name
        if its owner is dead or this process. Raises Held if another owner lives.

        owner_pid: None for no owner; lease: seconds, in place of a process (then call
        touch()). flags: more of `sessionbox open`, e.g. ["--memory-max", "4G"].
        """
        args = ["open"]
        if name:
            args += ["--name", name]
        if lease:
            args += ["--lease", f"{lease}s"]
        elif owner_pid is not None:
            args += ["--owner-pid", str(os.getpid() if owner_pid == -1 else owner_pid)]
        if on_owner_exit:
            args += ["--on-owner-exit", on_owner_exit]
        for k, v in (labels or {}).items():
            args += ["--label", f"{k}={v}"]
        if take_over:
            args.append("--take-over")
        elif attach and name:
            args.append("--attach")
        return cls(_call(*args, *flags))

    @property
    def resumed(self) -> bool:
        """Tasks are in it already: do not start again what still runs."""
        return len(self.info["tasks"]) > 0

    def _generation(self) -> list[str]:
        return ["--generation", str(self.generation)] if self.generation else []

    def start(
        self,
        argv: Sequence[str],
        *,
        timeout: Optional[float] = None,
        kill_after: float = 2,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        stdin: Optional[bytes] = None,
        log: bool = False,
    ) -> Running:
        """Starts a command; log keeps its output for logs(), also what the background
        writes later on."""
        args = ["exec", self.id, "--json", *self._generation()]
        if log:
            args.append("--log")
        if timeout:
            args += ["--timeout", f"{timeout}s", "--kill-after", f"{kill_after}s"]
        if cwd:
            args += ["--workdir", cwd]
        return Running(self, [*args, "--", *argv], env, stdin, kill_after)

    def run(self, argv: Sequence[str], **options: Any) -> Result:
        """Runs a command to its end; the options are those of start. What it leaves in the
        background goes on in the session and is no reason to wait."""
        return self.start(argv, **options).wait()

    async def run_async(self, argv: Sequence[str], **options: Any) -> Result:
        """The same for asyncio: cancelling it ends the task with everything it started."""
        running = self.start(argv, **options)
        waiting = asyncio.ensure_future(asyncio.to_thread(running.wait))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await asyncio.to_thread(running.abort)
            await asyncio.wait([waiting])
            waiting.exception()  # it was told
            raise

    def spawn(self, argv: Sequence[str], *, cwd: Optional[str] = None, timeout: Optional[float] = None) -> Json:
        """Starts a command that nobody waits for, e.g. a server: its ref, task, pid. logs()
        has its output."""
        args = ["exec", self.id, "--detach", "--log", *self._generation()]
        if cwd:
            args += ["--workdir", cwd]
        if timeout:
            args += ["--timeout", f"{timeout}s"]
        return _call(*args, "--", *argv)

    def logs(self, task: int, *, tail: Optional[int] = None) -> bytes:
        """What a task that was spawned, or run with log=True, has written to stdout."""
        args = [PROGRAM, "logs", f"{self.id}/{task}", *(["--tail", str(tail)] if tail else [])]
        r = subprocess.run(args, stdin=subprocess.DEVNULL, capture_output=True)
        if r.returncode:
            raise _failure(r.returncode, {"code": "not_found", "message": r.stderr.decode(errors="replace").strip()})
        return r.stdout

    def inspect(self) -> Json:
        """What there is of it: tasks with state and processes, leftovers, memory, ports."""
        return _call("inspect", self.id)

    def kill(self, task: Optional[int] = None) -> Json:
        """Ends one task with everything it started, or all; the session stays open."""
        return _call("kill", f"{self.id}/{task}" if task else self.id)

    def touch(self) -> Json:
        """Renews the lease; call it three times within its length."""
        return _call("touch", self.id, *self._generation())

    def close(self, *, grace: Optional[float] = None, now: bool = False) -> Json:
        """Ends everything and gives the receipt; closing what is closed gives the first one."""
        args = ["close", self.id, *self._generation()]
        if now:
            args.append("--now")
        elif grace is not None:
            args += ["--grace", f"{grace}s"]
        self.receipt = _call(*args)[0]
        return self.receipt

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
