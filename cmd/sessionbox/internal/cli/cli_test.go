package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// What ends a verb decides its exit code, whatever is around it.
func TestExitCodes(t *testing.T) {
	wrap := func(kind error) error {
		return fmt.Errorf("around: %w", &session.Error{Kind: kind, Text: "text"})
	}
	for _, tt := range []struct {
		err       error
		verb, run int
	}{
		{wrap(session.ErrUsage), 2, 125},
		{usagef("x").hintf("y"), 2, 125},
		{wrap(session.ErrNotFound), 3, 125},
		{wrap(session.ErrClosed), 3, 125},
		{wrap(session.ErrSurvivors), 4, 125},
		{wrap(session.ErrUnsupported), 5, 125},
		{wrap(session.ErrPermission), 6, 125},
		{fs.ErrPermission, 6, 125},
		{wrap(session.ErrHeld), 7, 125},
		{wrap(session.ErrTimeout), 1, 125},
		{wrap(session.ErrFrozen), 1, 125},
		{errors.New("other"), 1, 125},
		{&session.Error{Kind: session.ErrCommand, Err: exec.ErrNotFound}, 1, 127},
		{&session.Error{Kind: session.ErrCommand, Err: fs.ErrNotExist}, 1, 127},
		{&session.Error{Kind: session.ErrCommand, Err: fs.ErrPermission}, 1, 126},
		{&codeError{code: 42}, 42, 42},
		{&severalError{[]error{wrap(session.ErrNotFound), wrap(session.ErrSurvivors), errors.New("x")}}, 4, 125},
	} {
		for runLike, want := range map[bool]int{false: tt.verb, true: tt.run} {
			a := &app{stderr: &bytes.Buffer{}, runLike: runLike}
			if got := a.report(tt.err); got != want {
				t.Errorf("report(%v), run %v = %d; want %d", tt.err, runLike, got, want)
			}
		}
	}
}

func TestErrorText(t *testing.T) {
	err := error(&session.Error{Kind: session.ErrHeld, Session: "work", Text: "is open already", Hint: "close it", Retry: true})
	var b bytes.Buffer
	a := &app{stderr: &b}
	a.report(err)
	if want := "sessionbox: session work: is open already\nsessionbox: hint: close it\n"; b.String() != want {
		t.Errorf("got %q; want %q", &b, want)
	}
	b.Reset()
	a.json = true
	a.report(err)
	if want := `{"schema":1,"error":{"code":"held","message":"session work: is open already","hint":"close it","session":"work","retryable":true}}` + "\n"; b.String() != want {
		t.Errorf("got %q; want %q", &b, want)
	}
	b.Reset()
	a.report(&codeError{code: 130, err: interrupted{syscall.SIGINT}})
	if !strings.Contains(b.String(), `"code":"interrupted"`) {
		t.Errorf("got %q", &b)
	}
	b.Reset()
	a.json = false
	a.report(errors.Join(errors.New("one"), errors.New("two")))
	if want := "sessionbox: one; two\n"; b.String() != want {
		t.Errorf("got %q; want %q", &b, want)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"open", "exec", "close", "ls", "ps", "memory-max", "memory-high", "timeout"}
	for word, want := range map[string]string{
		"opne": "open", "closee": "close", "ecex": "exec", "memroy-max": "memory-max", "tiemout": "timeout", "xyz": "", "l": "ls", "memory": "",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q) = %q; want %q", word, got, want)
		}
	}
}

func TestColored(t *testing.T) {
	for _, tt := range []struct {
		flag string
		tty  bool
		env  map[string]string
		want bool
	}{
		{"auto", true, nil, true},
		{"auto", false, nil, false},
		{"auto", true, map[string]string{"NO_COLOR": "1"}, false},
		{"auto", true, map[string]string{"NO_COLOR": ""}, true},
		{"always", false, map[string]string{"NO_COLOR": "1"}, true},
		{"never", true, map[string]string{"CLICOLOR_FORCE": "1"}, false},
		{"auto", false, map[string]string{"CLICOLOR_FORCE": "1"}, true},
		{"auto", false, map[string]string{"FORCE_COLOR": "0"}, false},
		{"auto", false, map[string]string{"FORCE_COLOR": "1", "NO_COLOR": "1"}, false},
		{"auto", true, map[string]string{"TERM": "dumb"}, false},
	} {
		env := func(k string) (string, bool) { v, ok := tt.env[k]; return v, ok }
		if got := colored(tt.flag, tt.tty, env); got != tt.want {
			t.Errorf("colored(%q, tty %v, %v) = %v; want %v", tt.flag, tt.tty, tt.env, got, tt.want)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "sigterm": syscall.SIGTERM, "15": syscall.SIGTERM, "USR1": syscall.SIGUSR1, "0": 0, "-1": 0, "65": 0, "": 0, "NOPE": 0} {
		got, err := parseSignal(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("parseSignal(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestFilter(t *testing.T) {
	i := &session.Info{ID: "abcdefghij", Name: "work", State: "open", Labels: map[string]string{"a": "b", "c": ""}, Leftovers: 1, Box: session.BoxInfo{Kind: "cgroup"}}
	for f, want := range map[string]bool{
		"name=work": true, "name=wor": false, "id=abc": true, "label=a": true, "label=a=b": true, "label=a=c": false, "label=x": false,
		"label=c=": true, "state=open": true, "box=cgroup": true, "box=systemd": false, "left=yes": true, "left=no": false, "running=no": true, "frozen=true": false,
	} {
		test, err := filter([]string{f})
		if err != nil {
			t.Fatal(err)
		}
		if got := test(i); got != want {
			t.Errorf("filter %q = %v; want %v", f, got, want)
		}
	}
	for _, f := range []string{"x", "x=y", "left=maybe"} {
		if _, err := filter([]string{f}); !errors.Is(err, session.ErrUsage) {
			t.Errorf("filter %q: %v", f, err)
		}
	}
}

// The verb that args name is the only one that is made: that must not change
// what any of them does.
func TestVerbsMadeAlone(t *testing.T) {
	all := Root()
	a := &app{}
	for _, v := range a.verbs() {
		alone := a.root([]string{v.name})
		one, _, err := alone.Find([]string{v.name})
		if err != nil {
			t.Fatal(err)
		}
		other, _, err := all.Find([]string{v.name})
		if err != nil {
			t.Fatal(err)
		}
		if one.Name() != v.name || one.UsageString() != other.UsageString() {
			t.Errorf("%s differs", v.name)
		}
	}
}

func TestRunWithoutVerb(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Run(context.Background(), nil, strings.NewReader(""), &out, &errs); code != 2 || out.Len() > 0 {
		t.Errorf("code %d, stdout %q", code, &out)
	}
}
