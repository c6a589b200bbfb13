package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// jobTime bounds each call of at and crontab.
const jobTime = 10 * time.Second

// endJobs takes back what the session wanted to be started later, or, in a dry run, says
// what that is. What at has started already carries the cookie: it is found as a stray.
func (m *Manager) endJobs(ctx context.Context, rec *store.Session, dry bool) []JobInfo {
	dir := m.shimDir(rec)
	all := endAt(ctx, rec.Cookie, dir != "" && dir.Jobs(), dry)
	if dir != "" {
		all = append(all, endCron(ctx, dir, m.tableLock(), dry)...)
	}
	return all
}

// toolPath finds a command that is part of the system, by where it is and not by the PATH
// of whoever closes alone.
func toolPath(name string) (string, error) {
	for _, dir := range engines.Places() {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(p) && !shim.In(dir) {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// tool runs such a command.
func tool(ctx context.Context, stdin, name string, args ...string) (string, error) {
	path, err := toolPath(name)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, jobTime)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.WaitDelay = append(plainEnv(), "LC_ALL=C"), time.Second
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// endAt removes the jobs whose environment, which at wrote down with them, has the
// session's cookie: also those that were queued past its shims. queued says that there may be
// some for certain: what cannot be listed or read then may be one.
func endAt(ctx context.Context, cookie string, queued, dry bool) []JobInfo {
	if cookie == "" {
		return nil
	}
	unheard := FateSuspect
	if queued {
		unheard = FateSurvived
	}
	out, err := tool(ctx, "", "atq")
	switch {
	case err != nil && !queued && (ctx.Err() == nil || errors.Is(err, exec.ErrNotFound)):
		return nil
	case err != nil: // there are some, or a close that hurries did not wait for the answer
		return []JobInfo{{Kind: "at", Fate: FateSurvived, Why: "its jobs cannot be listed: " + err.Error()}}
	}
	var ids []string
	for line := range strings.Lines(out) {
		f := strings.Fields(line) // number, date, queue, user
		if len(f) < 2 || f[len(f)-2] == "=" {
			continue // the queue of those that are running: it is a stray
		}
		ids = append(ids, f[0])
	}
	if !mayBeAmong(ctx, ids, cookie) {
		return nil
	}
	var all []JobInfo
	for _, id := range ids {
		script, err := tool(ctx, "", "at", "-c", id)
		switch {
		case err != nil && stillQueued(ctx, id):
			all = append(all, JobInfo{Kind: "at", ID: id, Fate: unheard, Why: "it cannot be read: " + err.Error()})
			continue
		case err != nil || !hasCookie(script, cookie) || queuedWithKeep(script): // it wants to outlive the session
			continue
		}
		j := JobInfo{Kind: "at", ID: id, Line: lastLine(script), Fate: fateAlive}
		if !dry {
			j.Fate = FateRemoved
			if _, err := tool(ctx, "", "atrm", id); err != nil && stillQueued(ctx, id) {
				j.Fate, j.Why = FateSurvived, err.Error()
			}
		}
		all = append(all, j)
	}
	return all
}

// queuedWithKeep says whether who queued a job wants it to outlive the session. at writes the
// environment before the job: a line for each variable, up to that which goes to the directory.
func queuedWithKeep(script string) bool {
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, EnvKeep+"=1; export "):
			return true
		case strings.HasPrefix(line, "cd "):
			return false
		}
	}
	return false
}

func hasCookie(script, cookie string) bool { return strings.Contains(script, EnvCookie+"="+cookie+";") }

// mayBeAmong says whether one of the jobs may be the session's. Mostly none is: that one call
// tells for all.
func mayBeAmong(ctx context.Context, ids []string, cookie string) bool {
	if len(ids) < 2 {
		return len(ids) > 0
	}
	scripts, err := tool(ctx, "", "at", append([]string{"-c"}, ids...)...)
	return err != nil || hasCookie(scripts, cookie)
}

// stillQueued says whether a job is there yet: it may have begun to run.
func stillQueued(ctx context.Context, id string) bool {
	out, err := tool(ctx, "", "atq")
	if err != nil {
		return true
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == id {
			return !slices.Contains(f, "=")
		}
	}
	return false
}

// lastLine is what a job of at does: its script begins with the environment.
func lastLine(script string) string {
	last := ""
	for line := range strings.Lines(script) {
		if t := strings.TrimSpace(line); t != "" && !strings.HasPrefix(t, "marcinDELIMITER") {
			last = t
		}
	}
	return last
}

// tableLock is held by whoever changes this user's crontab.
func (m *Manager) tableLock() string { return filepath.Join(m.store.StateDir(), "crontab.lock") }

// endCron takes the lines out of the user's table that are proven to be the session's.
func endCron(ctx context.Context, dir shim.Dir, lock string, dry bool) []JobInfo {
	if !dir.Changed() {
		return nil
	}
	left := func(why string, err error) []JobInfo {
		return []JobInfo{{Kind: "cron", Fate: FateSurvived, Why: why + ": " + err.Error()}}
	}
	path, err := toolPath("crontab")
	if err != nil {
		return left("the table cannot be read", err)
	}
	if !dry {
		wait, cancel := context.WithTimeout(ctx, jobTime)
		unlock, err := shim.LockTable(wait, lock)
		cancel()
		if err != nil {
			return left("the table cannot be changed", err)
		}
		defer unlock()
	}
	now, err := shim.Table(ctx, path, plainEnv())
	if err != nil {
		return left("the table cannot be read", err)
	}
	own, unsure := dir.Crontab(now)
	var all []JobInfo
	for _, l := range unsure {
		all = append(all, JobInfo{Kind: "cron", Line: l, Fate: FateSuspect, Why: "it came while the session changed the table, which does not prove whose it is"})
	}
	fate, why := fateAlive, ""
	if !dry && len(own) > 0 {
		fate = FateRemoved
		if err := takeOut(ctx, dir, path, now, own); err != nil {
			fate, why = FateSurvived, err.Error()
		}
	}
	for _, l := range own {
		all = append(all, JobInfo{Kind: "cron", Line: l, Fate: fate, Why: why})
	}
	return all
}

// tableTries is how often a table is written that somebody else writes, too.
const tableTries = 5

// takeOut takes the session's lines out of the table, which is now, and reads it again: who
// does not know of our lock may have written it meanwhile.
func takeOut(ctx context.Context, dir shim.Dir, crontab, now string, own []string) error {
	for range tableTries {
		rest, _ := shim.Without(now, own)
		args := []string{"-"}
		if strings.TrimSpace(rest) == "" {
			args = []string{"-r"}
		}
		if _, err := tool(ctx, rest, "crontab", args...); err != nil {
			return err
		}
		var err error
		if now, err = shim.Table(ctx, crontab, plainEnv()); err != nil {
			return err
		}
		if own, _ = dir.Crontab(now); len(own) == 0 {
			return nil
		}
	}
	return errors.New("somebody else writes the table, and puts the lines back")
}
