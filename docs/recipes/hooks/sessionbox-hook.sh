#!/bin/sh
# Hooks of an agent CLI: one session of sessionbox for each session of the agent.
#
#   sessionbox-hook.sh session-start   opens it, and moves the running agent into it
#   sessionbox-hook.sh before-tool     makes a shell tool's command a task of it
#   sessionbox-hook.sh session-end     closes it; the receipt goes to stderr
#
# stdin is the JSON that Claude Code, Codex and Gemini CLI give their hooks, stdout the
# JSON that they take. It needs a POSIX sh, sessionbox, and one of jq, python3 and node,
# whichever is there, to read JSON.
#
# Settings, in the environment:
#   SESSIONBOX_HOOK_OPEN       more flags for `sessionbox open`, e.g. "--memory-max 8G"
#   SESSIONBOX_HOOK_TIMEOUT    of a command that is not in the background (10m)
#   SESSIONBOX_HOOK_DECISION   ask (default), allow or none: see README.md
#   SESSIONBOX_HOOK_ADOPT      no: leave the agent where it is
#   SESSIONBOX_HOOK_AGENT_PID  the agent, if its hooks are not its children
#   SESSIONBOX_HOOK_JSON       jq, python3 or node: the one to use
set -u

say() { printf 'sessionbox-hook: %s\n' "$*" >&2; }

# fail REASON: a command that cannot be boxed does not run. Exit status 2 is how all
# three agents are told; elsewhere than before a tool they only show it.
fail() {
  say "$*"
  exit 2
}

verb=${1:-}
input=$(cat)

json=${SESSIONBOX_HOOK_JSON:-}
if [ -z "$json" ]; then
  for json in jq python3 node none; do
    command -v "$json" >/dev/null 2>&1 && break
  done
fi

# fields prints what we need of the input, quoted for the shell.
fields() {
  case $json in
    jq) printf '%s' "$input" | jq -r '
      (.tool_input // {}) as $t | @sh "event=\(.hook_event_name // "") agent_session=\(.session_id // "") source=\(.source // "")
        has_command=\($t.command | type == "string") background=\($t.run_in_background // $t.is_background // false)"' ;;
    python3) printf '%s' "$input" | python3 -c '
import json, shlex, sys
d = json.load(sys.stdin)
t = d.get("tool_input") or {}
b = t.get("run_in_background") or t.get("is_background") or False
for k, v in (("event", d.get("hook_event_name") or ""), ("agent_session", d.get("session_id") or ""), ("source", d.get("source") or ""),
             ("has_command", str(isinstance(t.get("command"), str)).lower()), ("background", str(b).lower())):
    print(k + "=" + shlex.quote(v))' ;;
    node) printf '%s' "$input" | node -e '
const d = JSON.parse(require("fs").readFileSync(0, "utf8")), t = d.tool_input ?? {};
const f = { event: d.hook_event_name ?? "", agent_session: d.session_id ?? "", source: d.source ?? "",
  has_command: typeof t.command === "string", background: t.run_in_background ?? t.is_background ?? false };
for (const [k, v] of Object.entries(f)) console.log(k + "=\u0027" + String(v).replaceAll("\u0027", "\u0027\\\u0027\u0027") + "\u0027");' ;;
    *) return 1 ;;
  esac
}

# rewrite PREFIX prints the answer before a tool: its input, with PREFIX and the quoted
# command as the command.
rewrite() {
  case $json in
    jq) printf '%s' "$input" | jq -c --arg prefix "$1" --arg decision "$decision" '
      (.tool_input + {command: ($prefix + (.tool_input.command | @sh))}) as $t
      | {hookSpecificOutput: ({hookEventName: .hook_event_name}
          + if .hook_event_name == "BeforeTool" then {tool_input: $t} else {updatedInput: $t}
            + if $decision == "none" then {} else {permissionDecision: $decision, permissionDecisionReason: "runs in a sessionbox session"} end end)}' ;;
    python3) printf '%s' "$input" | python3 -c '
import json, shlex, sys
prefix, decision = sys.argv[1:]
d = json.load(sys.stdin)
t = dict(d["tool_input"])
t["command"] = prefix + shlex.quote(t["command"])
o = {"hookEventName": d["hook_event_name"]}
if d["hook_event_name"] == "BeforeTool":
    o["tool_input"] = t
else:
    o["updatedInput"] = t
    if decision != "none":
        o.update(permissionDecision=decision, permissionDecisionReason="runs in a sessionbox session")
print(json.dumps({"hookSpecificOutput": o}))' "$1" "$decision" ;;
    node) printf '%s' "$input" | node -e '
const [prefix, decision] = process.argv.slice(1), d = JSON.parse(require("fs").readFileSync(0, "utf8"));
const t = { ...d.tool_input, command: prefix + "\u0027" + d.tool_input.command.replaceAll("\u0027", "\u0027\\\u0027\u0027") + "\u0027" };
const o = { hookEventName: d.hook_event_name };
if (d.hook_event_name === "BeforeTool") o.tool_input = t;
else {
  o.updatedInput = t;
  if (decision !== "none") Object.assign(o, { permissionDecision: decision, permissionDecisionReason: "runs in a sessionbox session" });
}
console.log(JSON.stringify({ hookSpecificOutput: o }));' "$1" "$decision" ;;
  esac
}

# context prints stdin as what the agent is told when its session starts.
context() {
  case $json in
    jq) jq -Rsc --arg event "$event" '{hookSpecificOutput: {hookEventName: $event, additionalContext: .}}' ;;
    python3) python3 -c 'import json, sys; print(json.dumps({"hookSpecificOutput": {"hookEventName": sys.argv[1], "additionalContext": sys.stdin.read()}}))' "$event" ;;
    node) node -e 'console.log(JSON.stringify({ hookSpecificOutput: { hookEventName: process.argv[1], additionalContext: require("fs").readFileSync(0, "utf8") } }))' "$event" ;;
  esac
}

# agent_pid is the agent: the nearest ancestor that is no shell, as agents run their
# hooks by way of one.
agent_pid() {
  pid=${SESSIONBOX_HOOK_AGENT_PID:-$PPID}
  while [ -z "${SESSIONBOX_HOOK_AGENT_PID:-}" ] && [ "$pid" -gt 1 ]; do
    read -r comm <"/proc/$pid/comm" || break
    case $comm in sh | bash | dash | ash | busybox | zsh | ksh | fish) ;; *) break ;; esac
    pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")
  done
  echo "$pid"
}

open_session() {
  # shellcheck disable=SC2086 # several flags
  sessionbox open --name "$name" --owner-pid "$agent" --attach --label "agent=$agent_session" "$@" ${SESSIONBOX_HOOK_OPEN:-}
}

# here is the session that this hook, and so the agent, runs in; empty if in none.
here() { sessionbox inspect . --json 2>/dev/null | sed -n 's/^  "'"$1"'": "\(.*\)",$/\1/p'; }

session_start() {
  sessionbox reconcile >&2 # agents that crashed
  old=$(here id) old_name=$(here name)
  case $old_name in
    "$name") return 0 ;;            # compacted or resumed by the agent that is in it
    agent-*) flags=--no-parent ;;   # cleared: the agent's session has a new id
    *) flags= old= ;;
  esac
  id=$(open_session $flags) || fail "no session could be opened"
  running=$(sessionbox ps "$name" 2>/dev/null)
  if [ "$(sessionbox ls -q -f "id=$id" -f running=yes)$(sessionbox ls -q -f "id=$id" -f left=yes)" ]; then
    printf 'Of an earlier run of this session there still run, and need not be started again:\n%s\n' "$running" | context
  fi
  if [ "${SESSIONBOX_HOOK_ADOPT:-yes}" != no ] && sessionbox help adopt >/dev/null 2>&1; then
    sessionbox adopt "$name" "$agent" ${old:+--from-session} >&2 || say "the agent stays where it is"
  fi
  if [ -n "$old" ] && [ "$(here id)" != "$old" ]; then
    sessionbox close "$old" >&2
  fi
}

before_tool() {
  [ "$has_command" = true ] || return 0 # no shell command: none of our business
  open_session >/dev/null || fail "no session to run it in"
  set -- --kill-after 5s
  [ "$background" = true ] || set -- --timeout "${SESSIONBOX_HOOK_TIMEOUT:-10m}" "$@"
  [ "$background" = true ] && set --
  shell=sh
  command -v bash >/dev/null 2>&1 && shell=bash
  rewrite "sessionbox exec $name $* -- $shell -c " || fail "the command could not be rewritten"
}

session_end() {
  if [ "$(here name)" = "$name" ]; then
    # Closing it now would end the agent, and us, before it is through. It ends with its
    # owner, the agent: the guard closes it, or the next reconcile.
    say "$name ends when the agent (process $agent) does; \`sessionbox history\` has its receipt then"
    return 0
  fi
  sessionbox close "$name" --grace 1s >&2
}

parsed=$(fields) || fail "cannot read the hook's input: is it JSON, and is one of jq, python3 and node there?"
eval "$parsed"
[ -n "$agent_session" ] || fail "the input has no session_id"
# A name takes letters, digits, dot, dash and underscore, 64 at most.
name=agent-$(printf '%s' "$agent_session" | tr -c 'A-Za-z0-9._-' - | cut -c 1-58)
agent=$(agent_pid)
decision=${SESSIONBOX_HOOK_DECISION:-ask}

case $verb in
  session-start) session_start ;;
  before-tool) before_tool ;;
  session-end) session_end ;;
  *) fail "usage: sessionbox-hook.sh session-start|before-tool|session-end" ;;
esac
