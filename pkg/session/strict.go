package session

import (
	"slices"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/internal/shim"
	"github.com/sessionbox/sessionbox/pkg/store"
)

// EnvStrict is "1" for the commands of a strict session.
const EnvStrict = "SESSIONBOX_STRICT"

func strictNeedsKernel(session string) error {
	return &Error{Kind: ErrUnsupported, Session: session, Text: "a strict session needs a box that the kernel enforces, and here is the lineage box",
		Hint: "`sessionbox doctor` says what is missing; what asks nobody else can leave a lineage box, too"}
}

func strictInfo(rec *store.Session) *StrictInfo {
	if !rec.Strict {
		return nil
	}
	return &StrictInfo{Doors: append([]store.Door{}, rec.Doors...)}
}

// strictEnviron tells the commands of a strict session that it is one. tmux puts its
// sockets where others of the session find them: the usual place is hidden. The shims of a
// session around it could note nothing: to it all records are read-only.
func strictEnviron(rec *store.Session, env []string) []string {
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, EnvStrict+"=") })
	if !rec.Strict {
		return env
	}
	if !rec.Shims {
		env = shim.Environ(env, "")
	}
	env = append(env, EnvStrict+"=1")
	if rec.TmpDir == "" {
		return env
	}
	env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TMUX_TMPDIR=") })
	return append(env, "TMUX_TMPDIR="+rec.TmpDir)
}
