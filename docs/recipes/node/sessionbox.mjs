// A session of sessionbox for a harness in Node (18 or newer). Copy this file; it needs
// the sessionbox program and nothing else.
//
//   import { Session, HeldError } from './sessionbox.mjs';
//
//   await Session.reconcile();                       // once, when the harness starts
//   const s = await Session.open({ name: 'work' });  // this process owns it
//   const r = await s.exec(['npm', 'test'], { timeout: 120 });
//   const dev = await s.spawn(['npm', 'run', 'dev']);
//   const receipt = await s.close();                 // nothing is left, or it throws
//
// When this process dies, however it dies, the session is closed by the guard or by the
// next reconcile, with everything that ran in it.
import { spawn } from 'node:child_process';

/** A failure of sessionbox itself. A command that fails is none: look at its code. */
export class SessionboxError extends Error {
  constructor(exit, error = {}) {
    super(error.message ?? `sessionbox ended with ${exit}`);
    this.name = this.constructor.name;
    this.exit = exit; // of the sessionbox program
    this.code = error.code ?? 'internal'; // usage, not_found, held, closed, command, …
    this.hint = error.hint; // what to do about it, for people
    this.session = error.session;
    this.retryable = error.retryable ?? false;
    this.info = error.info; // with HeldError: the session, its owner and its tasks
  }
}
/** The session is another living owner's: see info.owner and info.tasks. */
export class HeldError extends SessionboxError {}
/** There is no such session, or it is closed. */
export class GoneError extends SessionboxError {}
/** The command cannot be run (exit 126) or was not found (127). */
export class CommandError extends SessionboxError {}
/** Something survived the close: see receipt.survivors. Close again later. */
export class SurvivorsError extends SessionboxError {}

function failure(exit, error) {
  const kinds = { held: HeldError, not_found: GoneError, closed: GoneError, command: CommandError, survivors: SurvivorsError };
  return new (kinds[error?.code] ?? SessionboxError)(exit, error);
}

// A background child may hold the pipes open for ever: what comes later than this after
// the end is not the command's output.
const DRAIN_MS = 100;

/** Runs the program to its end, not to the end of its output. */
function run(bin, args, { env, input, signal, killAfter = 2, onStdout, onStderr, maxBytes = 16 << 20 } = {}) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const child = spawn(bin, args, { stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'], env: env && { ...process.env, ...env } });
    const out = { stdout: [], stderr: [] };
    let last = Date.now();
    let done = false;
    const collect = (name, tell) => {
      let size = 0;
      child[name].on('data', (chunk) => {
        if (done) return; // read on all the same: a closed pipe would kill who writes to it
        last = Date.now();
        if (size < maxBytes) out[name].push(chunk);
        size += chunk.length;
        tell?.(chunk);
      });
    };
    collect('stdout', onStdout);
    collect('stderr', onStderr);
    if (input !== undefined) {
      child.stdin.on('error', () => {}); // it need not read all of it
      child.stdin.end(input);
    }
    let kill;
    const abort = () => {
      // SIGTERM is handed on to the command. SIGKILL of sessionbox exec is safe: the
      // session's anchor ends the task with everything it started.
      child.kill('SIGTERM');
      kill = setTimeout(() => child.kill('SIGKILL'), killAfter * 1000);
    };
    signal?.addEventListener('abort', abort, { once: true });
    const settled = () => {
      signal?.removeEventListener('abort', abort);
      clearTimeout(kill);
    };
    child.on('error', (err) => { settled(); reject(err); });
    child.on('exit', (code, sig) => {
      settled();
      const finish = () => {
        if (done) return;
        done = true;
        child.stdout.unref?.(); // what reads on must not keep us from ending
        child.stderr.unref?.();
        resolve({ code, signal: sig, stdout: Buffer.concat(out.stdout), stderr: Buffer.concat(out.stderr) });
      };
      child.on('close', finish); // usually at once
      const ended = last = Date.now();
      const wait = setInterval(() => {
        if (!done && Date.now() - last < DRAIN_MS && Date.now() - ended < 10 * DRAIN_MS) return;
        clearInterval(wait);
        finish();
      }, DRAIN_MS / 4);
    });
  });
}

/** The last line of stderr that is ours, and stderr without it. */
function splitJSON(stderr) {
  const lines = stderr.toString().split('\n');
  for (let i = lines.length - 1; i >= 0; i--) {
    if (!lines[i].startsWith('{"schema":')) continue;
    try {
      const line = JSON.parse(lines[i]);
      if (line.error || line.ref) return [line, [...lines.slice(0, i), ...lines.slice(i + 1)].join('\n')];
    } catch { /* the command's own */ }
  }
  return [undefined, stderr.toString()];
}

/** A verb other than exec: its JSON answer. */
async function call(bin, args, env) {
  const r = await run(bin, ['--json', ...args], { env });
  const answer = r.stdout.length ? JSON.parse(r.stdout) : undefined;
  if (r.code === 0) return answer;
  const err = failure(r.code, splitJSON(r.stderr)[0]?.error);
  err.answer = answer; // close: the receipts
  throw err;
}

const seconds = (n) => `${n}s`;

export class Session {
  constructor(info, bin = 'sessionbox') {
    this.id = info.id;
    this.name = info.name ?? info.id;
    this.info = info; // as it was when it was opened
    this.generation = info.owner?.generation;
    this.bin = bin;
  }

  /**
   * Opens a session that this process owns, or attaches to the open one of that name
   * if its owner is dead or this process. Throws HeldError if another owner lives.
   * session.resumed says that tasks are in it: do not start again what still runs.
   *
   * ownerPid: null for none; lease: seconds, in place of a process (then call touch()).
   * flags: more of `sessionbox open`, e.g. ['--memory-max', '4G'].
   */
  static async open({ name, ownerPid = process.pid, lease, onOwnerExit, labels = {}, attach = true, takeOver = false, flags = [], bin = 'sessionbox' } = {}) {
    const args = ['open'];
    if (name) args.push('--name', name);
    if (lease) args.push('--lease', seconds(lease));
    else if (ownerPid) args.push('--owner-pid', String(ownerPid));
    if (onOwnerExit) args.push('--on-owner-exit', onOwnerExit);
    for (const [k, v] of Object.entries(labels)) args.push('--label', `${k}=${v}`);
    if (takeOver) args.push('--take-over');
    else if (attach && name) args.push('--attach');
    return new Session(await call(bin, [...args, ...flags]), bin);
  }

  /** Sets right what crashes left. The answer's sessions say what was done and what is alive. */
  static async reconcile({ dryRun = false, bin = 'sessionbox' } = {}) {
    try {
      return await call(bin, ['reconcile', ...(dryRun ? ['--dry-run'] : [])]);
    } catch (err) {
      if (err.exit === 4 && err.answer) return err.answer; // done, and something survived: it says what
      throw err;
    }
  }

  static list({ bin = 'sessionbox' } = {}) {
    return call(bin, ['ls']);
  }

  get resumed() {
    return this.info.tasks.length > 0;
  }

  #generation() {
    return this.generation ? ['--generation', String(this.generation)] : [];
  }

  /**
   * Runs a command to its end: { code, signal, stdout, stderr, timedOut, state, leftovers, ref }.
   * code is 128+n when signal n ended it. What it leaves in the background goes on in the
   * session and is no reason to wait.
   *
   * timeout, killAfter: seconds. log: true keeps the output for logs(), also what the
   * background writes later on. signal: an AbortSignal; the promise then rejects with its
   * reason, after the task was ended with everything it started.
   * onStdout, onStderr: called with each chunk, stderr's last one holding a line of JSON.
   */
  async exec(argv, { timeout, killAfter, cwd, env, input, log, signal, onStdout, onStderr, maxBytes } = {}) {
    const args = ['exec', this.id, '--json', ...this.#generation()];
    if (log) args.push('--log');
    if (timeout) args.push('--timeout', seconds(timeout));
    if (timeout && killAfter !== undefined) args.push('--kill-after', seconds(killAfter));
    if (cwd) args.push('--workdir', cwd);
    const r = await run(this.bin, [...args, '--', ...argv], { env, input, signal, killAfter, onStdout, onStderr, maxBytes });
    const [line, stderr] = splitJSON(r.stderr);
    if (signal?.aborted) {
      if (line?.leftovers) await this.kill(line.task); // what it had put in the background
      throw signal.reason;
    }
    if (line?.error || !line) throw failure(r.code ?? `signal ${r.signal}`, line?.error);
    return {
      code: r.code, signal: line.signal, stdout: r.stdout.toString(), stderr,
      timedOut: line.state === 'timed_out', state: line.state, reason: line.reason, leftovers: line.leftovers, ref: line.ref, task: line.task,
    };
  }

  /** Starts a command that nobody waits for, e.g. a server: { ref, task, pid, … }. logs() has its output. */
  async spawn(argv, { cwd, env, timeout } = {}) {
    const args = ['exec', this.id, '--detach', '--log', ...this.#generation()];
    if (cwd) args.push('--workdir', cwd);
    if (timeout) args.push('--timeout', seconds(timeout));
    return call(this.bin, [...args, '--', ...argv], env);
  }

  /** What a task that was spawned, or run with log: true, has written: { stdout, stderr }. */
  async logs(task, { tail } = {}) {
    const r = await run(this.bin, ['logs', `${this.id}/${task}`, ...(tail ? ['--tail', String(tail)] : [])]);
    if (r.code !== 0) throw failure(r.code, { code: 'not_found', message: r.stderr.toString().trim() });
    return { stdout: r.stdout.toString(), stderr: r.stderr.toString() };
  }

  /** What there is of it: tasks with their state and processes, leftovers, memory, ports. */
  inspect() {
    return call(this.bin, ['inspect', this.id]);
  }

  /** Ends one task with everything it started, or all; the session stays open. */
  kill(task) {
    return call(this.bin, ['kill', task ? `${this.id}/${task}` : this.id]);
  }

  /** Renews the lease; call it three times within its length. */
  touch() {
    return call(this.bin, ['touch', this.id, ...this.#generation()]);
  }

  /** Ends everything and gives the receipt. Closing what is closed gives the first one. */
  async close({ grace, now = false } = {}) {
    const args = ['close', this.id, ...this.#generation()];
    if (now) args.push('--now');
    else if (grace !== undefined) args.push('--grace', seconds(grace));
    try {
      return (await call(this.bin, args))[0];
    } catch (err) {
      err.receipt = err.answer?.[0];
      throw err;
    }
  }
}

// await using session = await Session.open(…)
if (Symbol.asyncDispose) {
  Session.prototype[Symbol.asyncDispose] = async function () { await this.close(); };
}
