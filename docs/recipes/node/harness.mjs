// A harness in small: it takes tool calls from stdin, one a line, and answers each with
// a line. See ../README.md, "The example harness".
import { createInterface } from 'node:readline';
import { Session, HeldError } from './sessionbox.mjs';

const say = (...words) => console.log(words.join(' '));
const bash = (command) => ['bash', '-c', command];
const oneLine = (text) => text.trim().replaceAll('\n', ' ');

for (const s of (await Session.reconcile()).sessions) {
  if (s.action !== 'none') say('reconciled', s.name ?? s.id, s.action);
}

let session;
try {
  session = await Session.open({ name: process.argv[2], onOwnerExit: process.argv[3] });
} catch (err) {
  if (!(err instanceof HeldError)) throw err;
  say('held', err.info.owner?.pid ?? 0, 'running', err.info.running);
  process.exit(7);
}
say(session.resumed ? 'resumed' : 'opened', session.id, 'running', session.info.running);

for await (const line of createInterface({ input: process.stdin })) {
  const [, verb, number, command] = /^(\w+)(?: (\d+))?(?: (.*))?$/.exec(line);
  try {
    switch (verb) {
      case 'run': {
        const r = await session.exec(bash(command), { timeout: Number(number), killAfter: 1 });
        if (r.timedOut) say('timeout');
        else say('exit', r.code, oneLine(r.stdout));
        break;
      }
      case 'abort': // a person pressed Esc
        await session.exec(bash(command), { signal: AbortSignal.timeout(Number(number)), killAfter: 1 })
          .then((r) => say('exit', r.code), () => say('aborted'));
        break;
      case 'serve':
        say('started', (await session.spawn(bash(command))).ref);
        break;
      case 'log': // of task number
        say('logged', oneLine((await session.logs(number)).stdout));
        break;
      case 'left': {
        const info = await session.inspect();
        say('left', info.leftovers, 'running', info.running);
        break;
      }
    }
  } catch (err) {
    say('failed', err.code, oneLine(err.message));
  }
}
const receipt = await session.close();
say('closed', receipt.survivors.length, ...[...receipt.processes, ...receipt.strays].map((p) => p.pid));
