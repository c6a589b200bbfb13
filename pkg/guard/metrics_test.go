package guard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sessionbox/sessionbox/pkg/session"
)

type listed []session.Info

func (l listed) List(context.Context, session.ListOptions) ([]session.Info, error) { return l, nil }

// sample metrics have something of everything.
func sampleMetrics() *metrics {
	m := newMetrics(listed{
		{State: "open", Leftovers: 2, Processes: 3, Tasks: []session.TaskInfo{{State: "running"}, {State: "exited"}}},
		{State: "open", Tasks: []session.TaskInfo{{State: "running"}}}, {State: "closing"},
	}, `v1.2-"x"`+"\n")
	m.begun(700 * time.Microsecond)
	m.begun(2 * time.Second)
	m.done(time.Minute)
	fated := func(fates ...string) (all []session.Fated) {
		for _, f := range fates {
			all = append(all, session.Fated{Fate: f})
		}
		return all
	}
	m.acted(&session.Reconciled{Action: session.ActionNone})
	m.acted(&session.Reconciled{Action: session.ActionKept, Reason: "its owner is gone: process 7"})
	m.acted(&session.Reconciled{Action: session.ActionEnded, Reason: "its owner is gone: process 7 (idle)", Receipt: &session.Receipt{
		Processes: fated(session.FateEnded, session.FateKilled), Strays: fated(session.FateKilled),
		Nested: []session.Receipt{{Processes: fated(session.FateEnded)}}}})
	return m
}

// gather reads what is written as Prometheus would.
func gather(t *testing.T, text string) prometheus.Gatherer {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		var all []*dto.MetricFamily
		for _, f := range families {
			all = append(all, f)
		}
		return all, nil
	})
}

func TestMetricsLint(t *testing.T) {
	var b bytes.Buffer
	if err := sampleMetrics().write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(gather(t, b.String()))
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestMetricsText(t *testing.T) {
	var b bytes.Buffer
	if err := sampleMetrics().write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, line := range []string{
		`sessionbox_guard_build_info{version="v1.2-\"x\"\n"} 1`,
		`sessionbox_guard_lag_seconds_bucket{stage="begun",le="0.0005"} 0`,
		`sessionbox_guard_lag_seconds_bucket{stage="begun",le="0.001"} 1`,
		`sessionbox_guard_lag_seconds_bucket{stage="begun",le="2.5"} 2`,
		`sessionbox_guard_lag_seconds_bucket{stage="begun",le="+Inf"} 2`,
		`sessionbox_guard_lag_seconds_sum{stage="begun"} 2.0007`,
		`sessionbox_guard_lag_seconds_bucket{stage="done",le="30"} 0`,
		`sessionbox_guard_lag_seconds_count{stage="done"} 1`,
		`sessionbox_leftover_processes 2`,
		`sessionbox_processes 3`,
		`sessionbox_processes_ended_total{reason="owner_gone",fate="ended"} 2`,
		`sessionbox_processes_ended_total{reason="owner_gone",fate="killed"} 2`,
		`sessionbox_reconcile_actions_total{action="ended"} 1`,
		`sessionbox_reconcile_actions_total{action="kept"} 1`,
		`sessionbox_sessions{state="closing"} 1`,
		`sessionbox_sessions{state="open"} 2`,
		`sessionbox_strays_total 1`,
		`sessionbox_tasks{state="exited"} 1`,
		`sessionbox_tasks{state="running"} 2`,
		"# TYPE sessionbox_guard_lag_seconds histogram",
		"# TYPE sessionbox_strays_total counter",
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("no line %s in:\n%s", line, b.String())
		}
	}
}

// Nobody asks for them: nothing is counted.
func TestNoMetrics(*testing.T) {
	var m *metrics
	m.begun(1)
	m.done(1)
	m.acted(&session.Reconciled{Action: session.ActionEnded})
}

func serveSample(t *testing.T, addr string) (*server, error) {
	t.Helper()
	network, at, err := ParseAddress(addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{network: network, addr: at, metrics: sampleMetrics(), log: slog.New(slog.DiscardHandler)}
	t.Cleanup(s.close)
	if err := s.listen(false); err != nil {
		return s, err
	}
	s.serve()
	return s, nil
}

func get(t *testing.T, s *server, method, path string) (*http.Response, string) {
	t.Helper()
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial(s.network, s.address())
	}}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://guard"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(b)
}

func TestServe(t *testing.T) {
	sock := filepath.Join(t.TempDir(), "m.sock")
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "unix:" + sock} {
		s, err := serveSample(t, addr)
		if addr == "[::1]:0" && err != nil {
			t.Logf("no IPv6: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r, body := get(t, s, "GET", "/metrics?x=1")
			if r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
				t.Errorf("%s: %v %v", addr, r.Status, r.Header)
			}
			gather(t, body)
		}
		for method, want := range map[string]int{"HEAD /metrics": 200, "GET /": 404, "POST /metrics": 405, "DELETE /": 405} {
			m, path, _ := strings.Cut(method, " ")
			if r, _ := get(t, s, m, path); r.StatusCode != want {
				t.Errorf("%s %s: %s, want %d", addr, method, r.Status, want)
			}
		}
	}
	info, err := os.Lstat(sock)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
}

// What is no request costs its connection, and nobody else's.
func TestServeNonsense(t *testing.T) {
	s, err := serveSample(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	for range askers - 1 {
		c, err := net.Dial("tcp", s.address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for _, text := range []string{"\n", "GET\r\n\r\n", "GET /metrics SPDY/3\r\n\r\n", "\x16\x03\x01\x02\x00", "GET /metrics HTTP/1.1\r\nX: " + strings.Repeat("x", askMax)} {
		c, err := net.Dial("tcp", s.address())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		c.Close()
		if len(b) > 0 && !strings.HasPrefix(string(b), "HTTP/1.1 400 ") {
			t.Errorf("%.20q: %.60q", text, b)
		}
	}
	if r, _ := get(t, s, "GET", "/metrics"); r.StatusCode != 200 {
		t.Error(r.Status)
	}
	for _, c := range silent {
		c.Close()
	}
}

// The socket of a guard that has died is replaced, the one of a living guard and
// what is none are not.
func TestServeStaleSocket(t *testing.T) {
	dir := t.TempDir()
	sock := filepath.Join(dir, "m.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if _, err := serveSample(t, "unix:"+sock); !errors.Is(err, session.ErrHeld) {
		t.Errorf("a living one: %v", err)
	}
	l.Close()
	s, err := serveSample(t, "unix:"+sock)
	if err != nil {
		t.Fatal(err)
	}
	get(t, s, "GET", "/metrics")
	// Another one has put its own there: it stays when we go.
	if err := os.Remove(sock); err != nil {
		t.Fatal(err)
	}
	next, err := serveSample(t, "unix:"+sock)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	get(t, next, "GET", "/metrics")
	next.close()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if err := os.WriteFile(sock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serveSample(t, "unix:"+sock); !errors.Is(err, session.ErrUsage) {
		t.Errorf("a file: %v", err)
	}
}

func TestServeRefuses(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:9414", "192.0.2.1:9414", ":9414", "metrics.example:9414"} {
		_, err := newServer(Options{Metrics: addr}, nil)
		var e *session.Error
		if !errors.As(err, &e) || !errors.Is(err, session.ErrUsage) || e.Hint == "" {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if s, err := newServer(Options{}, nil); err != nil || s.listen(false) != nil || s.serve() != nil {
		t.Errorf("none: %v", err)
	}
}

// The address of a guard that is about to end is waited for.
func TestServeLater(t *testing.T) {
	first, err := serveSample(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second := &server{network: "tcp", addr: first.address(), metrics: sampleMetrics(), log: slog.New(slog.DiscardHandler)}
	if err := second.listen(true); err != nil || second.l != nil {
		t.Errorf("%v, listening %v", err, second.l != nil)
	}
	time.AfterFunc(100*time.Millisecond, first.close)
	if err := second.listen(false); err != nil {
		t.Fatal(err)
	}
	defer second.close()
	second.serve()
	get(t, second, "GET", "/metrics")
}
