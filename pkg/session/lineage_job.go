package session

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sessionbox/sessionbox/pkg/darwinjob"
	"github.com/sessionbox/sessionbox/pkg/internal/keeper"
	"github.com/sessionbox/sessionbox/pkg/internal/launchd"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// LineageMode is how a lineage box holds what is in it.
type LineageMode string

// The modes of a lineage box. In the first one its processes descend from whoever starts them, as
// always, and their ancestry tells. In the other (macOS) they descend from a launchd job of the
// session's own: its resource coalition, which nothing forked in it can leave, holds them. The
// price is that for macOS sessionbox is then who they belong to, and not the terminal or
// program that started them: consent that was given to that (TCC) does not count, and where nobody
// is logged in with windows the login keychain may be locked.
const (
	LineageDirect LineageMode = "direct"
	LineageJob    LineageMode = "job"
)

// jobWish is whether a lineage box is to be a job.
type jobWish int

const (
	noJob   jobWish = iota
	mayJob          // if it can be had
	mustJob         // or there is no session
)

func wantsJob(o *OpenOptions) jobWish {
	switch {
	case o.LineageMode == LineageJob:
		return mustJob
	case o.LineageMode == "" && o.Detached:
		return mayJob
	}
	return noJob
}

// checkMode refuses modes that are none, or not to be had.
func (m *Manager) checkMode(mode LineageMode, kind store.Kind) error {
	switch mode {
	case "", LineageDirect:
		return nil
	case LineageJob:
	default:
		return &Error{Kind: ErrUsage, Text: fmt.Sprintf("lineage mode: not %q", mode), Hint: "want auto, direct or job"}
	}
	if m.launchd == nil {
		return &Error{Kind: ErrUnsupported, Text: "--lineage-mode job: there are launchd jobs on macOS only",
			Hint: "leave it out, or SESSIONBOX_LINEAGE_MODE: `sessionbox doctor` says what holds a session here"}
	}
	if kind != "" && kind != store.KindLineage {
		return &Error{Kind: ErrUsage, Text: "a " + string(kind) + " box is no job", Hint: "leave out --backend, or --lineage-mode"}
	}
	return nil
}

// partJob is the part of a lineage's records that says who the stub is, and its coalition.
const partJob = "job"

// Files of a job in the session's directory.
const (
	jobPlist = "job.plist"
	jobLog   = "job.log"
)

// stubTime bounds the start of a job until its stub answers, past what launchctl takes.
const stubTime = 15 * time.Second

// mayTime bounds the start of a job that a session can do without, in all.
const mayTime = 10 * time.Second

// errJobLeft says that a job has ended, and launchd knows it still.
var errJobLeft = errors.New("launchd could not be told that the job has ended")

// jobPrefix begins the labels of jobs.
const jobPrefix = "dev.sessionbox."

// jobLabel is what launchd calls the job of a session: with the place of the records, as launchd
// is one and sessions may be recorded in several.
func (m *Manager) jobLabel(id string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(m.store.Dirs().State))
	return fmt.Sprintf("%s%s.%08x", jobPrefix, id, h.Sum32())
}

// idOfLabel is the session that is recorded here and has the label's job.
func (m *Manager) idOfLabel(label string) (string, bool) {
	id, _, _ := strings.Cut(strings.TrimPrefix(label, jobPrefix), ".")
	return id, store.ValidID(id) && label == m.jobLabel(id)
}

// inJob says whether the box is a job.
func (b *lineageBox) inJob() bool { return b.rec.Lineage == string(LineageJob) }

// jobDir is where the job's stub can be asked to start something, "" if there is no job.
func (b *lineageBox) jobDir() string {
	if !b.inJob() {
		return ""
	}
	return b.m.store.SessionDir(b.rec.ID)
}

// enterJob makes a job of a box that nobody is in yet, if that is wished and can be had.
func (b *lineageBox) enterJob(ctx context.Context, rec *store.Session, wish jobWish) error {
	if wish == noJob || b.m.launchd == nil {
		return nil
	}
	try, cancel := ctx, context.CancelFunc(func() {})
	if wish == mayJob { // a launchd that does not answer is not waited for that long
		try, cancel = context.WithTimeout(ctx, mayTime)
	}
	err := b.startJob(try, rec)
	cancel()
	if err == nil {
		return nil
	}
	if wish == mustJob {
		return &Error{Kind: ErrUnsupported, Session: rec.ID, Text: "it cannot be a launchd job", Err: err,
			Hint: "`sessionbox doctor` says which domains launchd has here; --lineage-mode direct does without"}
	}
	b.m.log.Warn("no launchd job can be had: direct mode", "session", rec.ID, "why", err)
	if rec.Lineage == "" {
		return nil // nothing was begun
	}
	// What was started must not be in the way of a session that is none.
	if err := b.Kill(ctx, ""); err != nil {
		return err
	}
	if err := b.endJob(ctx); err != nil && !errors.Is(err, errJobLeft) {
		return err
	} else if err != nil {
		b.m.store.Owe(rec.Unit)
	}
	if err := b.m.store.RemoveLineage(rec.ID, partJob); err != nil {
		return recordError(err)
	}
	rec.Lineage, rec.Unit = "", ""
	b.rec = *rec
	return b.m.update(ctx, rec)
}

// startJob has launchd start the stub, and proves that its coalition is the session's alone. The
// record says what is begun before it is: what a crash leaves is found by it.
func (b *lineageBox) startJob(ctx context.Context, rec *store.Session) error {
	dir := b.m.store.SessionDir(rec.ID)
	if _, err := keeper.Socket(dir); err != nil {
		return err
	}
	helper, err := b.m.helper()
	if err != nil {
		return err
	}
	args, err := keeper.StubArgs(b.chain(), b.m.store.Dirs())
	if err != nil {
		return err
	}
	job := launchd.Job{Label: b.m.jobLabel(rec.ID), Program: append([]string{helper}, args...), Log: filepath.Join(dir, jobLog)}
	plist, err := job.Plist()
	if err != nil {
		return err
	}
	rec.Lineage, rec.Unit = string(LineageJob), job.Label
	b.rec = *rec
	if err := b.m.update(ctx, rec); err != nil {
		return err
	}
	path := filepath.Join(dir, jobPlist)
	if err := os.WriteFile(path, plist, 0o600); err != nil {
		return recordError(err)
	}
	domain, err := b.m.launchd.Start(ctx, path)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, stubTime)
	defer cancel()
	stub, err := keeper.Hello(wait, dir)
	if err != nil {
		return fmt.Errorf("the job that launchd started in %s does not answer: %w%s", domain, err, jobSaid(dir))
	}
	return b.proveJob(wait, stub)
}

// jobSaid is the end of what the stub has said, for people.
func jobSaid(dir string) string {
	const most = 300
	b, err := os.ReadFile(filepath.Join(dir, jobLog))
	text := strings.Join(strings.Fields(string(b)), " ")
	if err != nil || text == "" {
		return ""
	}
	return ": it said " + strings.ToValidUTF8(text[max(0, len(text)-most):], "")
}

// proveJob makes sure that the stub is who it says, and that nobody else is in its coalition: all
// that ever is will have been forked by it. That is written down before anything is.
func (b *lineageBox) proveJob(ctx context.Context, stub darwinjob.Proc) error {
	s, err := b.table.List(ctx)
	if err != nil {
		return err
	}
	var p, own darwinjob.Proc
	for i := range s.Procs {
		switch s.Procs[i].PID {
		case stub.PID:
			p = s.Procs[i]
		case os.Getpid():
			own = s.Procs[i]
		}
	}
	switch {
	case !stub.Same(p.ID):
		return errors.New("its stub is not who it says")
	case p.Coalition == 0:
		return errors.New("this kernel does not tell coalitions")
	case p.Coalition == own.Coalition:
		return errors.New("launchd gave it no coalition of its own")
	case s.Coalitions != nil && s.Coalitions[p.Coalition] != 1:
		return fmt.Errorf("%d processes are in its coalition already", s.Coalitions[p.Coalition])
	}
	l := darwinjob.NewLedger(b.rec.ID, s)
	l.Cookie, l.Mode, l.Coalition, l.Stub = b.rec.Cookie, darwinjob.Job, p.Coalition, p.ID
	data, err := l.Encode()
	if err != nil {
		return err
	}
	return recordError(b.m.store.PutLineage(b.rec.ID, partJob, data))
}

// keepsHere says of a process whether it is one of our own that serves this session, or one inside.
func (b *lineageBox) keepsHere(p *darwinjob.Proc) bool {
	if !strings.HasPrefix(p.Comm, "sessionbox") && !slices.Contains(b.m.programs(), p.Comm) {
		return false
	}
	return slices.Contains(b.m.servedBy(p), b.rec.ID)
}

// endJob has launchd forget the job of a box that is to be removed. It makes sure that nobody has
// come into it since it was emptied: its stub was able to start something until it was ended.
func (b *lineageBox) endJob(ctx context.Context) error {
	if !b.inJob() || b.m.launchd == nil {
		return nil
	}
	p, err := b.glance()
	if err != nil {
		return err
	}
	if len(p.Alive("")) > 0 {
		if err := b.Kill(ctx, ""); err != nil {
			return fmt.Errorf("%w: %w", syscall.EBUSY, err)
		}
	}
	// It may be that launchd does not answer, and a session is not kept open by that.
	if err := b.m.launchd.End(context.WithoutCancel(ctx), b.rec.Unit); err != nil {
		return fmt.Errorf("%s: %w: %w", b.rec.Unit, errJobLeft, err)
	}
	dir := b.m.store.SessionDir(b.rec.ID)
	if path, err := keeper.Socket(dir); err == nil {
		_ = os.Remove(path) // with the directory, at the latest
	}
	_ = os.Remove(filepath.Join(dir, jobPlist))
	return nil
}

// sweepJobs has launchd forget jobs of sessions that are closed, which it could not be told then,
// and those of which there is neither a record here nor a process.
func (m *Manager) sweepJobs(ctx context.Context) {
	if m.launchd == nil || m.stateErr != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, launchd.Timeout)
	defer cancel()
	labels, err := m.launchd.Labels(ctx, jobPrefix)
	if err != nil {
		m.log.Debug("list the jobs", "err", err)
	}
	owed := m.store.Owed()
	for _, label := range slices.Compact(slices.Sorted(slices.Values(append(labels, owed...)))) {
		id, ok := m.idOfLabel(label)
		if !ok {
			if slices.Contains(owed, label) {
				m.store.Owe(label) // another's to pay
			}
			continue
		}
		if !m.jobOver(id) {
			continue
		}
		if err := m.launchd.End(ctx, label); err != nil {
			m.log.Warn("end a job that was left", "job", label, "err", err)
			m.store.Owe(label)
		}
	}
}

// jobOver says that a session has neither a record here nor a process of ours.
func (m *Manager) jobOver(id string) bool {
	if _, err := m.store.Get(id); !errors.Is(err, store.ErrNotFound) {
		return false
	}
	return !slices.ContainsFunc(keepers(), func(k keeperProc) bool { return slices.Contains(k.ids, id) })
}

// containment is how sure a lineage box is, and what it cannot hold.
func containment(rec *store.Session) (string, []string) {
	if rec.Lineage != string(LineageJob) {
		return BestEffort, mayEscape()
	}
	return ByCoalition, []string{"work that another daemon does on request: launchctl, open, at, cron, containers, ssh to this machine, a tmux server that was there before"}
}

// jobAround is the session in whose coalition we are, "" for none.
func jobAround(all *survey) string {
	i := slices.IndexFunc(all.ledgers(), func(l *darwinjob.Ledger) bool { return l.Mode == darwinjob.Job && l.Coalition != 0 })
	if i < 0 {
		return ""
	}
	self, err := all.table.Lookup(os.Getpid())
	if err != nil || self.Coalition == 0 {
		return ""
	}
	for _, l := range all.ledgers() {
		if l.Mode == darwinjob.Job && l.Coalition == self.Coalition {
			return l.Session
		}
	}
	return ""
}

// notIntoJob refuses processes that run already: no system call moves one into a coalition.
func (b *lineageBox) notIntoJob() error {
	if !b.inJob() {
		return nil
	}
	return &Error{Kind: ErrUnsupported, Session: b.rec.ID, Text: "a process that runs already cannot come into a launchd job",
		Hint: "start it with `sessionbox exec`, without --replace"}
}

// jobCheck says whether sessions can be jobs here, and what that changes for them.
func (m *Manager) jobCheck(ctx context.Context) Check {
	c := Check{Name: "job mode", Status: CheckMissing}
	domains, err := m.launchd.Domains(ctx)
	switch {
	case errors.Is(err, launchd.ErrNoDomain):
		c.Text, c.Fix = err.Error(), "log in with windows, or by ssh as this user; without it sessions are held by ancestry (direct mode)"
		return c
	case err != nil:
		c.Status, c.Text = CheckUnknown, err.Error()
		return c
	}
	c.Status = CheckOK
	c.Text = fmt.Sprintf("--lineage-mode job, and sessions that nobody at a terminal opens: held by the coalition of a launchd job in %s", domains[0])
	if name, err := m.launchd.Manager(ctx); err == nil && name != "" {
		c.Text += " (this login is " + name + ")"
	}
	c.Text += "; macOS then asks for consent to files and devices (TCC) in the name of sessionbox, not of the terminal"
	if !strings.HasPrefix(domains[0], "gui/") {
		c.Text += ", and without a login with windows the login keychain may be locked"
	}
	if _, err := keeper.Socket(m.store.SessionDir(strings.Repeat("x", 10))); err != nil {
		c.Status, c.Text, c.Fix = CheckMissing, "the directory of the records: "+err.Error(), "SESSIONBOX_STATE_DIR names a shorter one"
	}
	return c
}
