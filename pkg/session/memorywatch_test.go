package session

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/memlimit"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// Somebody must watch the memory of a session that has a ceiling, or asks for it; not
// that of any other, and not of one that says no.
func TestMemoryPolicy(t *testing.T) {
	limited, err := memlimit.Limits{MemoryMax: memlimit.Bytes(1 << 30)}.OCI()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := memlimit.Limits{PidsMax: memlimit.Bytes(100)}.OCI()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rec          store.Session
		policy, warn bool
	}{
		"nothing":           {store.Session{}, false, false},
		"processes":         {store.Session{Limits: pids}, false, false},
		"ceiling":           {store.Session{Limits: limited}, true, true},
		"ceiling, off":      {store.Session{Limits: limited, Memory: &store.MemoryPolicy{Warn: "off"}}, false, false},
		"on":                {store.Session{Memory: &store.MemoryPolicy{Warn: "on"}}, true, true},
		"command":           {store.Session{Memory: &store.MemoryPolicy{OnWarn: "true"}}, true, true},
		"desktop":           {store.Session{Memory: &store.MemoryPolicy{Notify: "desktop"}}, true, true},
		"steps":             {store.Session{Memory: &store.MemoryPolicy{Steps: "warn,freeze"}}, true, false},
		"steps, off":        {store.Session{Limits: limited, Memory: &store.MemoryPolicy{Warn: "off", Steps: "warn,freeze"}}, true, false},
		"protected":         {store.Session{Memory: &store.MemoryPolicy{Protected: true}}, false, false},
		"steps of tomorrow": {store.Session{Memory: &store.MemoryPolicy{Steps: "warn,teleport"}}, false, false},
	} {
		if w := memoryWatch(&c.rec, nil); w.Policy != c.policy || w.Warn != c.warn {
			t.Errorf("%s: policy %v, warn %v; want %v, %v", name, w.Policy, w.Warn, c.policy, c.warn)
		}
	}
}

// What is asked for wins over the config file, key by key; what is no word is refused.
func TestMemoryOptions(t *testing.T) {
	freeze, none := memlimit.MayFreeze, memlimit.Steps(0)
	cfg := &config.Memory{Warn: "on", OnWarn: "logger x", Notify: "desktop", Steps: &freeze}
	for name, c := range map[string]struct {
		o    MemoryOptions
		cfg  *config.Memory
		want *store.MemoryPolicy
	}{
		"nothing":  {MemoryOptions{}, &config.Memory{}, nil},
		"config":   {MemoryOptions{}, cfg, &store.MemoryPolicy{Warn: "on", OnWarn: "logger x", Notify: "desktop", Steps: "warn,freeze"}},
		"flags":    {MemoryOptions{Warn: "off", OnWarn: "-", Notify: "none", Steps: &none, Protected: true}, cfg, &store.MemoryPolicy{Warn: "off", Protected: true}},
		"one flag": {MemoryOptions{OnWarn: "true"}, cfg, &store.MemoryPolicy{Warn: "on", OnWarn: "true", Notify: "desktop", Steps: "warn,freeze"}},
	} {
		got, err := c.o.policy(c.cfg)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v; -want +got:\n%s", name, err, diff)
		}
	}
	for _, o := range []MemoryOptions{{Warn: "maybe"}, {Notify: "mail"}, {OnWarn: "a\x00b"}} {
		if _, err := o.policy(cfg); !errors.Is(err, ErrUsage) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
