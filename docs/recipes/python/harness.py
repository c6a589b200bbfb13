"""A harness in small: it takes tool calls from stdin, one a line, and answers each with
a line. See ../README.md, "The example harness"."""

import asyncio
import re
import sys
import threading

import sessionbox
from sessionbox import Held, Session, SessionboxError


def say(*words: object) -> None:
    print(*words, flush=True)


def one_line(text: str) -> str:
    return text.strip().replace("\n", " ")


for s in sessionbox.reconcile()["sessions"]:
    if s["action"] != "none":
        say("reconciled", s.get("name", s["id"]), s["action"])

try:
    session = Session.open(sys.argv[1], on_owner_exit=sys.argv[2] if len(sys.argv) > 2 else None)
except Held as e:
    say("held", (e.info.get("owner") or {}).get("pid", 0), "running", e.info["running"])
    sys.exit(7)
say("resumed" if session.resumed else "opened", session.id, "running", session.info["running"])

with session:
    for line in sys.stdin:
        match = re.match(r"(\w+)(?: (\d+))?(?: (.*))?$", line)
        verb, number, command = match.groups() if match else ("", None, None)
        argv = ["bash", "-c", command or ""]
        try:
            if verb == "run":
                r = session.run(argv, timeout=int(number or 0), kill_after=1)
                say("timeout") if r.timed_out else say("exit", r.code, one_line(r.stdout))
            elif verb == "abort":  # a person pressed Esc
                running = session.start(argv, kill_after=1)
                threading.Event().wait(int(number or 0) / 1000)
                running.abort()
                say("aborted")
            elif verb == "cancel":  # the same with asyncio
                try:
                    r = asyncio.run(asyncio.wait_for(session.run_async(argv, kill_after=1), int(number or 0) / 1000))
                    say("exit", r.code)
                except asyncio.TimeoutError:
                    say("aborted")
            elif verb == "serve":
                say("started", session.spawn(argv)["ref"])
            elif verb == "log":  # of task number
                say("logged", one_line(session.logs(int(number or 0)).decode()))
            elif verb == "left":
                info = session.inspect()
                say("left", info["leftovers"], "running", info["running"])
        except SessionboxError as e:
            say("failed", e.code, one_line(str(e)))
say("closed", len(session.receipt["survivors"]), *(p["pid"] for p in session.receipt["processes"] + session.receipt["strays"]))
