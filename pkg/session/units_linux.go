package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/scope"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// transientDir is where the manager of this user writes down the transient units that
// it has: one file each, for as long as it knows them. To read it asks nobody.
func transientDir() (dir, manager string) {
	if os.Geteuid() == 0 {
		return "/run/systemd/transient", "system"
	}
	run := os.Getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(run) {
		run = fmt.Sprintf("/run/user/%d", os.Geteuid())
	}
	return filepath.Join(run, "systemd", "transient"), "user"
}

// unitsOf finds the transient units that a session has had started: by its cookie in
// the unit, which the shim put there, or as the unit lies in its slice. Services and
// timers that have come since it was opened and are nobody's are suspects: systemd does
// not write down who asked for a unit. Scopes are not: their processes came from
// somewhere, and carry the cookie if it was the session.
func (m *Manager) unitsOf(rec *store.Session) []UnitInfo { return unitsAmong(unitFiles(), rec) }

// unitFile is a transient unit as its manager has written it down.
type unitFile struct {
	fs.DirEntry
	text, manager string
}

// unitFiles reads those of this user's manager.
func unitFiles() []unitFile { return unitFilesIn(transientDir()) }

func unitFilesIn(dir, manager string) (all []unitFile) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := e.Name()
		kind := filepath.Ext(name)
		if !e.Type().IsRegular() || strings.HasPrefix(name, "sessionbox") && ownUnit(name) ||
			kind != ".service" && kind != ".scope" && kind != ".timer" && kind != ".path" && kind != ".socket" {
			continue
		}
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil { // else it has ended
			all = append(all, unitFile{e, string(b), manager})
		}
	}
	return all
}

// unitsAmong gives those that are a session's, or suspects.
func unitsAmong(files []unitFile, rec *store.Session) (all []UnitInfo) {
	ours := map[string]bool{}
	for _, f := range files {
		name, text := f.Name(), f.text
		kind := filepath.Ext(name)
		slice := setting(text, "Slice")
		u := UnitInfo{Name: name, Manager: f.manager, Command: setting(text, "Description"), Fate: fateAlive, Inside: rec.Unit != "" && slice == rec.Unit}
		u.returns = starts(name) || kind == ".service" && !slices.Contains([]string{"", "no"}, setting(text, "Restart"))
		switch {
		case u.Inside && engineScope(name): // a container
			continue
		case !u.Inside && givesKeep(text): // it wants to outlive the session
			continue
		case u.Inside, rec.Cookie != "" && strings.Contains(text, EnvCookie+"="+rec.Cookie):
			if kind == ".service" {
				ours[strings.TrimSuffix(name, kind)] = true
			}
		case kind == ".scope", strings.HasPrefix(slice, "sessionbox-"), strings.Contains(text, EnvCookie+"="):
			continue // of another session, or a scope
		default:
			fi, err := f.Info()
			if err != nil || rec.Created.IsZero() || fi.ModTime().Before(rec.Created) {
				continue
			}
			u.Fate, u.Why = FateSuspect, "it was started since the session was opened; systemd does not say by whom"
		}
		all = append(all, u)
	}
	// What starts a service says nothing of whose it is; the service of its name does.
	for i := range all {
		if starts(all[i].Name) && ours[strings.TrimSuffix(all[i].Name, filepath.Ext(all[i].Name))] {
			all[i].Fate, all[i].Why = fateAlive, ""
		}
	}
	return all
}

// givesKeep says whether a unit's environment asks for it to outlive the session. Its command
// may mention the variable as it likes.
func givesKeep(text string) bool {
	for line := range strings.Lines(text) {
		if words, ok := strings.CutPrefix(strings.TrimSpace(line), "Environment="); ok && shim.GivesKeep(words) {
			return true
		}
	}
	return false
}

// unitCarries says whether a transient unit was given a session's cookie by who asked for
// it, rather than by an environment that the manager has of its own.
func unitCarries(unit, cookie string) bool {
	dir, _ := transientDir()
	b, err := os.ReadFile(filepath.Join(dir, unit))
	return err == nil && strings.Contains(string(b), EnvCookie+"="+cookie)
}

// ownUnit says whether a unit is one that we make: a session's, or the guard.
func ownUnit(name string) bool {
	return strings.HasSuffix(name, "-main.service") || strings.HasSuffix(name, "-main.scope") || strings.HasSuffix(name, ".slice") || strings.HasPrefix(name, "sessionbox-guard")
}

// engineScope says whether a scope is a container's.
func engineScope(name string) bool {
	for _, p := range []string{"docker-", "libpod-", "nerdctl-", "cri-containerd-", "crio-"} {
		if strings.HasPrefix(name, p) && strings.HasSuffix(name, ".scope") {
			return true
		}
	}
	return false
}

// setting is the value of a setting in a unit file, "" if it has none.
func setting(text, name string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return v
		}
	}
	return ""
}

// endUnits has the manager end those of the session's units that are alive. One that restarts
// by itself, or waits for its time, is ended by nothing else.
func (h *hired) endUnits(ctx context.Context) {
	h.mu.Lock()
	units := slices.Clone(h.units)
	h.mu.Unlock()
	if !slices.ContainsFunc(units, func(u UnitInfo) bool { return u.Fate == fateAlive }) {
		return
	}
	mgr, err := h.dial(ctx)
	if err != nil {
		return // finish says so, if they are there then
	}
	defer mgr.Close()
	end := func(name string) (bool, error) { return mgr.End(ctx, name, h.c.grace()) }
	endAll(units, end)
	h.mu.Lock()
	h.units = units
	h.mu.Unlock()
}

// dial connects to the manager, once also if it did not answer a moment ago: that was about
// something else, and here is something that nobody else ends.
func (h *hired) dial(ctx context.Context) (*scope.Manager, error) {
	mgr, err := h.c.m.dial(ctx)
	if errors.Is(err, errBusDown) && !h.dialled {
		h.dialled = true
		if mgr, err = scope.Dial(ctx); err == nil {
			h.c.m.busFailed.Store(0)
		}
	}
	return mgr, err
}

// endAll ends the units that are alive, all at once: each has the grace. Those that would
// start a service anew go first.
func endAll(units []UnitInfo, end func(name string) (killed bool, err error)) {
	for _, first := range []bool{true, false} {
		var wg sync.WaitGroup
		for i := range units {
			u := &units[i]
			if u.Fate != fateAlive || starts(u.Name) != first {
				continue
			}
			wg.Go(func() {
				killed, err := end(u.Name)
				switch {
				case err != nil:
					u.Why = err.Error()
				case killed:
					u.Fate = FateKilled
				default:
					u.Fate = FateEnded
				}
			})
		}
		wg.Wait()
	}
}

// starts says whether a unit is one that starts the service of its name.
func starts(name string) bool {
	return slices.Contains([]string{".timer", ".path", ".socket"}, filepath.Ext(name))
}

// leftTime bounds ending what is left of units when the box is empty.
const leftTime = 15 * time.Second

// leftUnits looks again, and ends what has come meanwhile.
func (h *hired) leftUnits(ctx context.Context) {
	seen := map[string]int{}
	for i := range h.units {
		seen[h.units[i].Name] = i
	}
	now := h.c.m.unitsOf(&h.c.rec)
	still := map[string]bool{}
	var more []UnitInfo
	for _, u := range now {
		still[u.Name] = u.Fate != FateSuspect
		if i, ok := seen[u.Name]; !ok {
			h.units = append(h.units, u)
			more = append(more, u)
		} else if u.Fate != FateSuspect {
			h.units[i].Fate = fateAlive
			more = append(more, h.units[i])
		}
	}
	// A suspect that has ended meanwhile is none.
	h.units = slices.DeleteFunc(h.units, func(u UnitInfo) bool {
		_, there := still[u.Name]
		return u.Fate == FateSuspect && !there
	})
	for i := range h.units {
		if u := &h.units[i]; (u.Fate == fateAlive || u.Fate == FateSurvived) && !still[u.Name] {
			u.Fate, u.Why = FateKilled, "" // with the box, or by itself
		}
	}
	if !slices.ContainsFunc(more, func(u UnitInfo) bool { return u.Fate != FateSuspect }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leftTime)
	defer cancel()
	h.endUnits(ctx)
	settleUnits(h.units, h.c.m.unitsOf(&h.c.rec))
}

// settleUnits gives those their fate that were to be ended: now are those that are there.
func settleUnits(units, now []UnitInfo) {
	for i := range units {
		u := &units[i]
		there := slices.ContainsFunc(now, func(n UnitInfo) bool { return n.Name == u.Name && n.Fate != FateSuspect })
		switch {
		case u.Fate != fateAlive:
		case !there, u.Inside && !u.returns: // what runs in the slice is dead, and the slice takes the unit with it
			u.Fate, u.Why = FateKilled, ""
		default:
			u.Fate = FateSurvived
			if u.Why == "" {
				u.Why = "the manager does not answer"
			}
		}
	}
}
