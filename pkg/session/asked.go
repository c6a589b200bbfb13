package session

import (
	"context"
	"slices"
	"sync"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
)

// asked is what one look at many sessions has heard from others: each is asked once for all of
// them, and one that hangs is waited for once. nil asks anew each time.
type asked struct {
	conmons func() []conmon
	units   func() []unitFile

	mu      sync.Mutex
	engines map[string]func() ([]engines.Container, error)
}

func newAsked() *asked {
	return &asked{conmons: sync.OnceValue(allConmons), units: sync.OnceValue(unitFiles), engines: map[string]func() ([]engines.Container, error){}}
}

func (a *asked) allConmons() []conmon {
	if a == nil {
		return allConmons()
	}
	return a.conmons()
}

func (a *asked) unitFiles() []unitFile {
	if a == nil {
		return unitFiles()
	}
	return a.units()
}

// list gives the containers that an engine has of a session. Who asks first decides how long
// that may take.
func (a *asked) list(ctx context.Context, e engines.Engine, session string) ([]engines.Container, error) {
	if a == nil {
		return e.List(ctx, session)
	}
	key := e.Key()
	if path := e.Socket(); path != "" {
		key = e.String() // whoever asks there, it is one
	}
	a.mu.Lock()
	ask, ok := a.engines[key]
	if !ok {
		ask = sync.OnceValues(func() ([]engines.Container, error) { return e.Labelled(ctx) })
		a.engines[key] = ask
	}
	a.mu.Unlock()
	all, err := ask()
	return slices.DeleteFunc(slices.Clone(all), func(c engines.Container) bool { return c.Labels[engines.LabelID] != session }), err
}
