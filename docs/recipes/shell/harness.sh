#!/usr/bin/env bash
# A harness in small: it takes tool calls from stdin, one a line, and answers each with
# a line. See ../README.md, "The example harness". It needs bash and sessionbox.
#
#   harness.sh NAME [close|keep]     the second: what to do if this shell dies
set -euo pipefail
name=$1 on_exit=${2:-close}

# Output goes to files, not through pipes: $(…) would wait for every background child
# that holds its end. These two have no name any more, so that no crash leaves them.
file=$(mktemp)
exec 8<>"$file" && rm "$file"
file=$(mktemp)
exec 9<>"$file" && rm "$file"
out=/dev/fd/8 err=/dev/fd/9
id=
# However this shell ends, its session is closed: by this, or, after a SIGKILL, by the
# guard or the next reconcile.
finish() {
  local code=$?
  trap - EXIT
  if [ -n "$id" ]; then
    # 4: something survived, it is listed.
    sessionbox close "$id" >"$out" || code=$?
    cat "$out" >&2
    # shellcheck disable=SC2046 # one word per process
    echo closed "$((code == 4))" $(sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p' "$out")
  fi
  exit "$code"
}
trap finish EXIT

sessionbox reconcile >&2 || true # what earlier harnesses left is closed, or kept; 4: something survives

word=opened
[ -z "$(sessionbox ls -q -f "name=$name")" ] || word=resumed # do not start again what still runs
code=0
id=$(sessionbox open --name "$name" --owner-pid $$ --on-owner-exit "$on_exit" --attach) || code=$?
if [ "$code" -ne 0 ]; then
  id=
  [ "$code" -ne 7 ] || echo held # stderr says by whom
  exit "$code"
fi

# has FILTER: does the session have running=yes, left=yes …
has() { sessionbox ls -q -f "id=$id" -f "$1" | wc -l; }
answer() { tr '\n' ' ' <"$out" | sed 's/ *$//'; }

run() { # SECONDS COMMAND
  local code=0
  sessionbox exec "$id" --timeout "$1" --kill-after 1 -- bash -c "$2" </dev/null >"$out" 8>&- 9>&- || code=$?
  if [ "$code" -eq 124 ]; then echo timeout; else echo exit "$code" "$(answer)"; fi
}

runs() { jobs -rp | grep -qx "$1"; }

abort() { # MILLISECONDS COMMAND
  sessionbox exec "$id" --json -- bash -c "$2" </dev/null >"$out" 2>"$err" 8>&- 9>&- &
  local pid=$! ref
  sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
  runs "$pid" && kill -TERM "$pid" # is handed on to the command
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    runs "$pid" || break
    sleep 0.1
  done
  # Safe: the session's anchor ends the task with everything it started.
  runs "$pid" && kill -KILL "$pid"
  wait "$pid" 2>/dev/null || true
  ref=$(sed -n '$s/.*"ref":"\([^"]*\)".*/\1/p' "$err")
  [ -z "$ref" ] || sessionbox kill "$ref" 2>/dev/null || true # what it had put in the background
  echo aborted
}

echo "$word" "$id" running "$(has running=yes)"
while read -r verb rest; do
  case $verb in
    run | abort) "$verb" "${rest%% *}" "${rest#* }" ;;
    serve) echo started "$(sessionbox exec -d --log "$id" -- bash -c "$rest" 8>&- 9>&-)" ;;
    log) echo logged $(sessionbox logs "$id/$rest") ;; # of task number
    left) echo left "$(has left=yes)" running "$(has running=yes)" ;;
  esac
done
