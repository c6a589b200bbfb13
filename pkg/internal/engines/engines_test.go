package engines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fake is an engine that listens as docker does.
type fake struct {
	mu     sync.Mutex
	all    map[string]map[string]any
	images map[string]map[string]string
	calls  []string
	// before, if set, answers instead.
	before func(w http.ResponseWriter, r *http.Request) bool
}

func serve(t *testing.T, f *fake) Engine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "d.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: f}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return at(socket)
}

func at(socket string) Engine {
	return Engine{Tool: "docker", Options: []string{"--host=unix://" + socket}, Env: map[string]string{"HOME": "/nonexistent"}}
}

func (f *fake) add(id, session, token, image string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[string]map[string]any{}
	}
	f.all[id] = map[string]any{"Id": id, "Names": []string{"/a/link", "/name-" + id}, "Image": "bb", "ImageID": image, "State": "running", "Created": 1000,
		"Labels": map[string]string{LabelID: session, LabelToken: token}}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, r.Method+" "+r.URL.RequestURI())
	if f.before != nil && f.before(w, r) {
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if strings.HasPrefix(parts[0], "v1.") {
		parts = parts[1:]
	}
	no := func() {
		w.WriteHeader(404)
		fmt.Fprint(w, `{"message":"No such container"}`)
	}
	switch {
	case strings.Join(parts, "/") == "containers/json":
		list := []any{}
		for _, c := range f.all { // whatever the filter says: it is not believed
			list = append(list, c)
		}
		_ = json.NewEncoder(w).Encode(list)
	case parts[0] == "info":
		fmt.Fprint(w, `{"CgroupDriver":"systemd","CgroupVersion":"2","SecurityOptions":["name=seccomp","name=rootless"]}`)
	case parts[0] == "images":
		labels, ok := f.images[parts[1]]
		if !ok {
			no()
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Config": map[string]any{"Labels": labels}})
	case f.all[parts[1]] == nil:
		no()
	case r.Method == "DELETE":
		delete(f.all, parts[1])
		w.WriteHeader(204)
	case len(parts) == 3 && parts[2] == "stop":
		f.all[parts[1]]["State"] = "exited"
		w.WriteHeader(204)
	case len(parts) == 3 && parts[2] == "json":
		_ = json.NewEncoder(w).Encode(map[string]any{"Id": parts[1], "Created": time.Unix(1000, 5e8), "State": map[string]any{"Status": f.all[parts[1]]["State"], "ExitCode": 137}})
	default:
		w.WriteHeader(500)
	}
}

func TestListStopRemove(t *testing.T) {
	f := &fake{}
	e := serve(t, f)
	f.add("c1", "mine", "t1", "i1")
	f.add("c2", "another", "t2", "i1")
	ctx := context.Background()
	all, err := e.List(ctx, "mine")
	if err != nil || len(all) != 1 || all[0].ID != "c1" || all[0].Name != "name-c1" || !all[0].Running || all[0].Labels[LabelToken] != "t1" {
		t.Fatalf("%+v, %v", all, err)
	}
	if killed, err := e.Stop(ctx, &all[0], 1500*time.Millisecond); err != nil || !killed {
		t.Errorf("stop: killed %t, %v", killed, err)
	}
	if err := e.Remove(ctx, &all[0]); err != nil {
		t.Error(err)
	}
	// Removed between the list and what follows it.
	if _, err := e.Stop(ctx, &all[0], 0); !errors.Is(err, ErrGone) {
		t.Errorf("stop of what is gone: %v", err)
	}
	if err := e.Remove(ctx, &all[0]); err != nil {
		t.Errorf("remove of what is gone: %v", err)
	}
	if len(f.all) != 1 || f.all["c2"] == nil {
		t.Errorf("left: %v", f.all)
	}
	if !strings.Contains(strings.Join(f.calls, "\n"), "POST /containers/c1/stop?t=2\n") {
		t.Errorf("asked: %q", f.calls)
	}
	f.add("c3", "", "", "i1")
	for since, want := range map[float64]int{999.9: 1, 1000.2: 1, 1000.7: 0, 1001: 0} {
		if got, err := e.Since(ctx, time.UnixMilli(int64(since*1000))); err != nil || len(got) != want {
			t.Errorf("made since %g: %v, %v", since, got, err)
		}
	}
	if d, err := e.Driver(ctx); err != nil || d != (Driver{Systemd: true, Unified: true, Rootless: true}) {
		t.Errorf("driver %+v, %v", d, err)
	}
}

func TestInherited(t *testing.T) {
	f := &fake{images: map[string]map[string]string{"committed": {LabelToken: "t1"}, "plain": nil}}
	e := serve(t, f)
	for image, want := range map[string]bool{"committed": true, "plain": false, "gone": false} {
		got, err := e.Inherited(context.Background(), &Container{ImageID: image, Labels: map[string]string{LabelToken: "t1"}})
		if err != nil || got != want {
			t.Errorf("from %s: %t, %v", image, got, err)
		}
	}
}

// An engine that wants another version of its API is asked again in that.
func TestVersion(t *testing.T) {
	f := &fake{}
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/v1.44/") {
			return false
		}
		w.WriteHeader(400)
		fmt.Fprint(w, `{"message":"client version 1.12 is too old. Minimum supported API version is 1.44, please upgrade"}`)
		return true
	}
	e := serve(t, f)
	f.add("c1", "mine", "t1", "i1")
	if all, err := e.List(context.Background(), "mine"); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	f.before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(400)
		fmt.Fprint(w, `{"message":"client version 9.9 is too new"}`)
		return true
	}
	if _, err := e.List(context.Background(), "mine"); err == nil || !strings.Contains(err.Error(), "too new") {
		t.Errorf("want what it said, got %v", err)
	}
}

// Whatever listens there, or does not: an error in time, and no more.
func TestBadEngines(t *testing.T) {
	refused := filepath.Join(t.TempDir(), "refused.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: refused, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()

	say := func(text string) string {
		path := filepath.Join(t.TempDir(), "s.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		t.Cleanup(func() { close(hold); l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if text == "" { // hangs, with the question unread
						<-hold
						return
					}
					buf := make([]byte, 4096)
					_, _ = c.Read(buf)
					fmt.Fprint(c, text)
				}()
			}
		}()
		return path
	}
	for name, c := range map[string]struct{ socket, want string }{
		"refused":  {refused, "nobody listens"},
		"hangs":    {say(""), "no answer"},
		"silent":   {say("\n"), "no engine"},
		"ssh":      {say("SSH-2.0-OpenSSH_9.2\r\n"), "no engine"},
		"cut":      {say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[{"), "cut short"},
		"huge":     {say("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n[]"), "99999999999"},
		"nonsense": {say("HTTP/1.1 200 OK\r\n\r\nhello"), "no sense"},
		"chunks":   {say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "cut short"},
		"fails":    {say("HTTP/1.1 500 Oops\r\n\r\n{\"message\":\"disk full\"}"), "disk full"},
	} {
		began := time.Now()
		_, err := at(c.socket).List(context.Background(), "mine")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 2*AskTime {
			t.Errorf("%s took %v", name, took)
		}
	}
	// In pieces it is read all the same.
	whole := say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n1;x=y\r\n]\r\n0\r\n\r\n")
	if all, err := at(whole).List(context.Background(), "mine"); err != nil || len(all) != 0 {
		t.Errorf("chunks: %v, %v", all, err)
	}
}

func TestProof(t *testing.T) {
	p := Proof{Cookie: "0123"}
	token := p.NewToken()
	if !p.Made(token) || token == p.NewToken() {
		t.Errorf("token %q", token)
	}
	if again := p.TokenFor("compose"); !p.Made(again) || again != p.TokenFor("compose") || again == p.TokenFor("other") {
		t.Errorf("token for a purpose %q", again)
	}
	for _, forged := range []string{"", ".", "abc", token + "0", strings.Replace(token, ".", "0.", 1), Proof{Cookie: "4567"}.NewToken()} {
		if p.Made(forged) {
			t.Errorf("%q is taken for genuine", forged)
		}
	}
	if (Proof{}).Made(Proof{}.NewToken()) {
		t.Error("a session whose cookie is not known proves nothing")
	}
}

func TestSocket(t *testing.T) {
	dir := t.TempDir()
	sum := sha256.Sum256([]byte("far"))
	meta := filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]))
	if err := os.MkdirAll(meta, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(meta, "meta.json"), []byte(`{"Name":"far","Endpoints":{"docker":{"Host":"unix:///far.sock"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"currentContext":"default"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		e    Engine
		want string
	}{
		{Engine{Tool: "docker"}, dockerSocket},
		{Engine{Tool: "docker", Env: map[string]string{"DOCKER_HOST": "unix:///e.sock"}}, "/e.sock"},
		{Engine{Tool: "docker", Env: map[string]string{"DOCKER_HOST": "tcp://h:2375"}}, ""},
		{Engine{Tool: "docker", Options: []string{"--host=unix:///h.sock"}, Env: map[string]string{"DOCKER_HOST": "unix:///e.sock"}}, "/h.sock"},
		{Engine{Tool: "docker", Options: []string{"--context=default"}, Env: map[string]string{"DOCKER_CONFIG": dir}}, dockerSocket},
		{Engine{Tool: "docker", Options: []string{"--context=far", "--config=" + dir}}, "/far.sock"},
		{Engine{Tool: "docker", Env: map[string]string{"DOCKER_CONTEXT": "far", "DOCKER_CONFIG": dir}}, "/far.sock"},
		{Engine{Tool: "docker", Options: []string{"--context=nowhere"}, Env: map[string]string{"DOCKER_CONFIG": dir}}, ""},
		{Engine{Tool: "podman"}, ""},
	} {
		if got := c.e.Socket(); got != c.want {
			t.Errorf("%+v is at %q, want %q", c.e, got, c.want)
		}
	}
}

// TestRemoveInfra: the container that holds a pod together goes with the pod, once that is
// empty otherwise.
func TestRemoveInfra(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
cd ` + dir + `
case "$*" in
"container inspect infra") echo '[{"Id":"infra","Pod":"p1","IsInfra":true,"State":{"Status":"running"}}]';;
"pod inspect p1") cat pod;;
"pod rm --force p1") rm pod;;
*) echo "infra container infra cannot be removed without removing its pod p1" >&2; exit 125;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "podman"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	pod := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "pod"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	e := Engine{Tool: "podman", Env: map[string]string{"HOME": dir}}
	all, err := e.GetAll(ctx, []string{"infra"})
	if err != nil || len(all) != 1 || !all[0].Infra || all[0].PodID != "p1" {
		t.Fatalf("%+v, %v", all, err)
	}
	c := all[0]
	pod(`{"Id":"p1","Name":"x","Containers":[{"Id":"infra"},{"Id":"users"}]}`)
	if err := e.Remove(ctx, &c); err == nil || !strings.Contains(err.Error(), "users") {
		t.Errorf("a pod with somebody else's container in it: %v", err)
	}
	pod(`[{"Id":"p1","Name":"x","Containers":[{"Id":"infra"}]}]`)
	if err := e.Remove(ctx, &c); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "pod")); err == nil {
		t.Error("the pod is there")
	}
}

// TestGetAll: those of many that have gone do not hide the others, and one that was not asked
// for is not taken.
func TestGetAll(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
echo "$*" >>` + dir + `/log
case "$*" in
*gone*) echo "Error: no such container gone" >&2; exit 125;;
*broken*) echo "Error: database is locked" >&2; exit 125;;
"container inspect a b") echo '[{"Id":"a","Created":"2026-01-02T03:04:05Z"},{"Id":"b"},{"Id":"c"}]';;
"container inspect a") echo '[{"Id":"a"}]';;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "podman"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	e := Engine{Tool: "podman", Env: map[string]string{"HOME": dir}}
	all, err := e.GetAll(t.Context(), []string{"a", "b"})
	if err != nil || len(all) != 2 || all[0].ID != "a" || all[0].Created.IsZero() || all[1].ID != "b" {
		t.Errorf("%+v, %v", all, err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "log")); string(b) != "container inspect a b\n" {
		t.Errorf("podman was called so: %s", b)
	}
	if all, err = e.GetAll(t.Context(), []string{"a", "gone"}); err != nil || len(all) != 1 || all[0].ID != "a" {
		t.Errorf("with one that has gone: %+v, %v", all, err)
	}
	if all, err = e.GetAll(t.Context(), []string{"gone"}); err != nil || len(all) != 0 {
		t.Errorf("of one that has gone: %+v, %v", all, err)
	}
	if all, err = e.GetAll(t.Context(), []string{"a", "broken"}); err == nil {
		t.Errorf("from one that does not answer: %+v", all)
	}
}

// TestKey: engines are told apart by all that decides where a command goes.
func TestKey(t *testing.T) {
	local := Engine{Tool: "podman", Env: map[string]string{"HOME": "/h"}}
	remote := Engine{Tool: "podman", Env: map[string]string{"HOME": "/h", "CONTAINER_HOST": "ssh://elsewhere"}}
	if local.Key() == remote.Key() || local.Key() != local.Marked("c").Key() || local.String() != remote.String() {
		t.Errorf("%s is %s, %s is %s", local, local.Key(), remote, remote.Key())
	}
}

// FuzzAnswer: what somebody says is read to its end or refused, never more.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"))
	f.Add([]byte("HTTP/1.0 404 no\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, body, err := answer(strings.NewReader(string(text)))
		if err == nil && len(body) > len(text) {
			t.Fatalf("%d bytes of %d", len(body), len(text))
		}
	})
}

// An engine that is slow, or does not understand a question, may have done what it was asked for.
func TestRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	exit := exec.Command("false").Run()
	docker := Engine{Tool: "docker", Env: map[string]string{"DOCKER_HOST": "unix://" + socket}}
	far := Engine{Tool: "docker", Env: map[string]string{"DOCKER_HOST": "tcp://192.0.2.1:1"}}
	podman := Engine{Tool: "podman"}
	for _, c := range []struct {
		e    Engine
		err  error
		want bool
	}{
		{docker, plainly(syscall.ECONNREFUSED), true}, {docker, plainly(syscall.EACCES), true},
		{docker, plainly(context.DeadlineExceeded), false}, {docker, &statusError{code: 500}, false},
		{Engine{Tool: "docker", Env: map[string]string{"DOCKER_HOST": "unix:///nonexistent"}}, exit, true},
		{far, exit, false}, {far, exec.ErrNotFound, true}, {far, context.DeadlineExceeded, false},
		{podman, exit, true}, {podman, context.DeadlineExceeded, false},
	} {
		if got := c.e.Refused(c.err); got != c.want {
			t.Errorf("%s, %v: %t, want %t", c.e, c.err, got, c.want)
		}
	}
}

// Docker removes a container with --rm itself when it has ended: that is waited for.
func TestRemoveInProgress(t *testing.T) {
	f := &fake{}
	f.add("c1", "s", "t", "i")
	asked := 0
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"message":"removal of container c1 is already in progress"}`)
			return true
		}
		if asked++; asked == 3 {
			delete(f.all, "c1")
		}
		return false
	}
	e := serve(t, f)
	if err := e.Remove(t.Context(), &Container{ID: "c1"}); err != nil || asked < 3 {
		t.Errorf("%v, after %d questions", err, asked)
	}
}
