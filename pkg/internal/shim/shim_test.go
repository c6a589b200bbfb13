package shim

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/internal/engines"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		"docker run -d alpine sleep 5":            "docker run ADD -d alpine sleep 5",
		"docker create alpine":                    "docker create ADD alpine",
		"docker container run --rm alpine":        "docker container run ADD --rm alpine",
		"docker container create alpine":          "docker container create ADD alpine",
		"docker -H unix:///x.sock run alpine":     "docker -H unix:///x.sock run ADD alpine",
		"docker -Hunix:///x.sock run alpine":      "docker -Hunix:///x.sock run ADD alpine",
		"docker --context=far --debug run alpine": "docker --context=far --debug run ADD alpine",
		"docker --log-level run run alpine":       "docker --log-level run run ADD alpine",
		"docker -Dl run run alpine":               "docker -Dl run run ADD alpine",
		"docker ps -a":                            "",
		"docker exec run sh":                      "",
		"docker start x":                          "",
		"docker container ls":                     "",
		"docker container":                        "",
		"docker":                                  "",
		"docker -v":                               "",
		"docker --new-option run x":               "",
		"docker --host":                           "",
		"docker -- run x":                         "",
		"docker pod create":                       "",
		"podman pod create --name p":              "podman pod create ADD --name p",
		"podman --cgroup-manager cgroupfs run x":  "podman --cgroup-manager cgroupfs run ADD x",
		"podman --root /r --runroot=/rr -r run x": "podman --root /r --runroot=/rr -r run ADD x",
		"podman compose up":                       "",
		"nerdctl -n k8s run x":                    "nerdctl -n k8s run ADD x",
		"nerdctl --address /run/c.sock container create --name run x": "nerdctl --address /run/c.sock container create ADD --name run x",
	} {
		words := strings.Fields(line)
		c := parse(words[0], words[1:])
		got := ""
		if c.what != nothing {
			got = words[0] + " " + strings.Join(c.with(words[1:], "ADD"), " ")
		}
		if got != want {
			t.Errorf("%s:\n got %q\nwant %q", line, got, want)
		}
	}
}

// What says which engine is meant is kept for the close; what names a program is not.
func TestParseEngine(t *testing.T) {
	for line, want := range map[string]string{
		"docker -H unix:///x.sock --config c run a":                     "--host=unix:///x.sock --config=c",
		"docker -Hunix:///x.sock run a":                                 "--host=unix:///x.sock",
		"docker -H=unix:///x.sock run a":                                "--host=unix:///x.sock",
		"docker -DH unix:///x.sock run a":                               "--host=unix:///x.sock",
		"docker --host=unix:///x.sock run a":                            "--host=unix:///x.sock",
		"docker -Dc far run a":                                          "--context=far",
		"docker -cfar --tls --tlsverify=false run a":                    "--context=far --tls --tlsverify=false",
		"docker -c far compose up":                                      "--context=far",
		"podman -rc far run a":                                          "--remote --connection=far",
		"podman --conmon /tmp/evil --runtime /tmp/evil --root /r run a": "--root=/r",
		"podman --hooks-dir=/tmp/evil run a":                            "",
		"nerdctl -n k8s -a=/c.sock run a":                               "--namespace=k8s --address=/c.sock",
	} {
		words := strings.Fields(line)
		if got := strings.Join(parse(words[0], words[1:]).engine, " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for line, want := range map[string]bool{
		"podman run --pod p a": true, "podman run --pod=p a": true, "podman run --cgroups=split a": true, "podman run a": false,
		"docker run --cgroup-parent /x a": true, "podman --cgroup-manager=cgroupfs run a": true,
	} {
		words := strings.Fields(line)
		if got := parse(words[0], words[1:]).ownCgroup; got != want {
			t.Errorf("%s: the user decides about the cgroup: %t", line, got)
		}
	}
}

func TestParseCompose(t *testing.T) {
	for line, want := range map[string]string{
		"up -d":                          "F up -d",
		"-p x --profile dev up":          "-p x --profile dev F up",
		"-f a.yaml -f b.yaml run --rm w": "-f a.yaml -f b.yaml F run --rm w",
		"--file=a.yaml create":           "--file=a.yaml F create",
		"-f - up":                        "",
		"down":                           "",
		"ps":                             "",
		"":                               "",
		"--strange up":                   "",
	} {
		args := strings.Fields(line)
		c := parseCompose(args)
		got := ""
		if c.makes {
			got = strings.ReplaceAll(strings.Join(c.with(args, "X"), " "), "-f X", "F")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestParseComposeEngine(t *testing.T) {
	for line, want := range map[string]string{"-H unix:///x.sock up": "--host=unix:///x.sock", "-Hunix:///x.sock up": "--host=unix:///x.sock", "-c=far -f a up": "--context=far", "--context far up": "--context=far"} {
		if got := strings.Join(parseCompose(strings.Fields(line)).engine, " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestFindCompose(t *testing.T) {
	top := t.TempDir()
	sub := filepath.Join(top, "a", "b")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(names ...string) {
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(top, n), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := findCompose(sub, "", ""); len(got) != 0 && strings.HasPrefix(got[0], top) {
		t.Errorf("%q of nothing", got)
	}
	write("docker-compose.yml", "docker-compose.override.yml")
	if got := findCompose(sub, "", ""); !slices.Equal(got, []string{filepath.Join(top, "docker-compose.yml"), filepath.Join(top, "docker-compose.override.yml")}) {
		t.Errorf("%q", got)
	}
	write("compose.yaml")
	if got := findCompose(top, "", ""); got[0] != filepath.Join(top, "compose.yaml") {
		t.Errorf("%q", got)
	}
	if got := findCompose(top, "x.yml;y.yml", ";"); !slices.Equal(got, []string{"x.yml", "y.yml"}) {
		t.Errorf("%q of the environment", got)
	}
}

func TestOverride(t *testing.T) {
	got, err := override([]byte("# old\nversion: \"2.4\"\nservices:\n"), []string{"web", `we"ird`}, map[string]string{"sessionbox": "a$b"}, "x.slice")
	want := "version: \"2.4\"\n" + `services: {"we\"ird":{"labels":{"sessionbox":"a$$b"},"cgroup_parent":"x.slice"},"web":{"labels":{"sessionbox":"a$$b"},"cgroup_parent":"x.slice"}}` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("%v:\n got %s\nwant %s", err, got, want)
	}
}

// TestCompose: each call labels all services alike, so that compose leaves alone what runs;
// and a project that runs already, of somebody else, is not touched.
func TestCompose(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("compose.yaml", "services:\n")
	write("compose", `#!/bin/sh
cd `+dir+`
case "$*" in
*"--profile * config --services") [ -e old ] && exit 1; echo db; echo web; echo debug;;
*"config --services") echo web; echo db;;
*"ps -a -q") [ -e old ] && exit 1; cat ids;;
*"ps -q") [ -e broken ] && exit 1; cat ids;;
*) exit 1;;
esac
`)
	l, err := net.Listen("unix", filepath.Join(dir, "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `[{"Id":"ours","Labels":{"sessionbox":"abcdefghij"}},{"Id":"another","Labels":{"sessionbox":"bbbbbbbbbb"}}]`)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	t.Setenv("DOCKER_HOST", "unix://"+l.Addr().String())
	t.Setenv("COMPOSE_FILE", "")
	t.Chdir(dir)
	d, err := Make(filepath.Join(dir, "shims"), Config{ID: "abcdefghij", Cookie: "c00c1e"}, "/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	up := func() (args []string, override string) {
		t.Helper()
		s := shim{name: "docker-compose", path: filepath.Join(dir, "compose"), dir: d, c: Config{ID: "abcdefghij", Cookie: "c00c1e"}}
		args, code := s.rewrite([]string{"up", "-d"})
		if code >= 0 {
			t.Fatalf("exit code %d", code)
		}
		if len(args) == 2 {
			return args, ""
		}
		b, err := os.ReadFile(args[3])
		if err != nil || !slices.Equal(args[:3], []string{"-f", filepath.Join(dir, "compose.yaml"), "-f"}) {
			t.Fatalf("%q, %v", args, err)
		}
		return args, string(b)
	}
	write("ids", "")
	args, text := up()
	for _, want := range []string{`"web":`, `"db":`, `"debug":`, `"sessionbox":"abcdefghij"`, `"sessionbox.token":"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "sessionbox.by") {
		t.Errorf("who asked is in %s", text)
	}
	write("ids", "ours\n")
	if again, same := up(); !slices.Equal(again, args) || same != text {
		t.Errorf("the second call is %q with %s", again, same)
	}
	write("old", "")
	if _, text := up(); !strings.Contains(text, `"web":`) || strings.Contains(text, `"debug":`) {
		t.Errorf("with an old compose: %s", text)
	}
	write("ids", "ours\nanother\n")
	if args, _ := up(); len(args) != 2 {
		t.Errorf("another's project is called with %q", args)
	}
	write("ids", "")
	write("broken", "")
	if args, _ := up(); len(args) != 2 {
		t.Errorf("a project of which nothing is known is called with %q", args)
	}
}

func TestUnit(t *testing.T) {
	in, out := Config{ID: "abcdefghij", Cookie: "c00c1e", Slice: "sessionbox-abcdefghij.slice", User: true}, Config{ID: "abcdefghij", Cookie: "c00c1e"}
	const slice, marks = "--slice=sessionbox-abcdefghij.slice ", "--setenv=SESSIONBOX_ID=abcdefghij --setenv=SESSIONBOX_COOKIE=c00c1e "
	for line, want := range map[string]string{
		"--user sleep 9":                        slice + marks + "--user sleep 9",
		"--user --scope sleep 9":                slice + "--user --scope sleep 9",
		"--user --slice=mine.slice sleep 9":     marks + "--user --slice=mine.slice sleep 9",
		"--user -p Slice=mine.slice sleep":      marks + "--user -p Slice=mine.slice sleep",
		"--user --on-active=5 -- date -M":       slice + marks + "--user --on-active=5 -- date -M",
		"--user -M box sleep 9":                 "--user -M box sleep 9",
		"--user --later-option=x --host h true": "--user --later-option=x --host h true",
		"--user mytool --scope":                 slice + marks + "--user mytool --scope",
		"--user --later=x --host h mytool -- y": "--user --later=x --host h mytool -- y",
	} {
		s := shim{name: "systemd-run", c: in}
		if got := strings.Join(s.unit(strings.Fields(line)), " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
	s := shim{name: "systemd-run", c: out}
	if got := strings.Join(s.unit([]string{"--user", "true"}), " "); got != marks+"--user true" {
		t.Errorf("with no slice: %s", got)
	}
}

// The cookie is on no command line where systemd-run knows another way.
func TestUnitByName(t *testing.T) {
	for help, want := range map[string]string{
		"  -E --setenv=NAME[=VALUE]  Set environment variable": "--setenv=SESSIONBOX_ID --setenv=SESSIONBOX_COOKIE --user true",
		"  -E --setenv=NAME=VALUE    Set environment":          "--setenv=SESSIONBOX_ID=abcdefghij --setenv=SESSIONBOX_COOKIE=c00c1e --user true",
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "systemd-run")
		t.Setenv("SESSIONBOX_COOKIE", "another")
		t.Setenv("SESSIONBOX_ID", "another")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho '"+help+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := shim{name: "systemd-run", path: path, dir: Dir(dir), c: Config{ID: "abcdefghij", Cookie: "c00c1e"}}
		for _, asked := range []string{"first", "from the file"} {
			if got := strings.Join(s.unit([]string{"--user", "true"}), " "); got != want {
				t.Errorf("%s: %s, want %s", asked, got, want)
			}
			os.Remove(path)
		}
		if by := os.Getenv("SESSIONBOX_COOKIE"); strings.Contains(want, "COOKIE ") && by != "c00c1e" {
			t.Errorf("the environment has %q", by)
		}
	}
}

func TestQueues(t *testing.T) {
	for line, want := range map[string]bool{"now": true, "-f file now": true, "-q a now + 1 minute": true, "-m now": true, "-l": false, "-r 3": false, "-c 3": false, "-V": false, "": true} {
		if got := queues(strings.Fields(line)); got != want {
			t.Errorf("at %s: queues %t", line, got)
		}
	}
	for line, want := range map[string]bool{"-": true, "file": true, "-e": true, "-r": true, "-l": false, "": true} {
		if got := installs(strings.Fields(line)); got != want {
			t.Errorf("crontab %s: installs %t", line, got)
		}
	}
}

func TestOwnTable(t *testing.T) {
	for line, want := range map[string]string{"-": "-", "-u me -": "-", "-ume -e": "-e", "-u me": "", "-u you -": "no", "-uyou -r": "no", "-u": "no", "file": "file"} {
		rest, own := ownTable(strings.Fields(line), "me")
		if got := strings.Join(rest, " "); own != (want != "no") || own && got != want {
			t.Errorf("crontab %s: %q, own %t", line, got, own)
		}
	}
	if _, own := ownTable([]string{"-u", "", "-"}, ""); own {
		t.Error("a user without a name has a table")
	}
}

func TestCrontabLines(t *testing.T) {
	before := "# mine\n1 1 * * * a\n1 1 * * * a\n"
	after := "# mine\n# his\n1 1 * * * a\n1 1 * * * a\n1 1 * * * a\n2 2 * * * b\n"
	lines := added(before, after)
	if !slices.Equal(lines, []string{"1 1 * * * a", "2 2 * * * b"}) {
		t.Fatalf("added %q", lines)
	}
	rest, removed := Without(after, lines)
	if rest != "# mine\n# his\n1 1 * * * a\n1 1 * * * a\n" || len(removed) != 2 {
		t.Errorf("without: %q, removed %q", rest, removed)
	}
	if rest, removed := Without("3 3 * * * c\n", lines); rest != "3 3 * * * c\n" || removed != nil {
		t.Errorf("of another's table: %q, %q", rest, removed)
	}
}

func TestRefuse(t *testing.T) {
	if Refuse("at", []string{"now"}, false) != "" || Refuse("at", []string{"-l"}, true) != "" || Refuse("docker", []string{"run", "x"}, true) != "" {
		t.Error("refused what may be")
	}
	if Refuse("at", []string{"now"}, true) == "" || Refuse("crontab", []string{"-"}, true) == "" || Refuse("batch", nil, true) == "" {
		t.Error("a strict session lets something start later")
	}
}

// The next one in the PATH: no other shim, no link to ourselves.
func TestReal(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	linked, there := t.TempDir(), t.TempDir()
	mine, other := filepath.Join(t.TempDir(), dirName), filepath.Join(t.TempDir(), dirName)
	place := func(path string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	place(filepath.Join(there, "docker"))
	t.Setenv("PATH", there)
	d, err := Make(mine, Config{ID: "abcdefghij"}, self)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(d.Bin(), "podman")); err == nil {
		t.Error("a shim for what is not there")
	}
	place(filepath.Join(other, "bin", "docker")) // another version of this program
	if err := writeJSON(filepath.Join(other, configName), Config{ID: "bbbbbbbbbb"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(linked, "docker")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", strings.Join([]string{d.Bin(), filepath.Join(other, "bin"), linked, "", there}, ":"))
	if got, err := real("docker"); err != nil || got != filepath.Join(there, "docker") {
		t.Errorf("found %q, %v", got, err)
	}
	if got, ok := around(); !ok || got != d {
		t.Errorf("around us is %q", got)
	}
	t.Setenv("PATH", d.Bin())
	if got, err := real("docker"); err == nil {
		t.Errorf("found %q, which is ourselves", got)
	}
}

func TestEnviron(t *testing.T) {
	self, _ := os.Executable()
	t.Setenv("PATH", "/nowhere")
	inner, err := Make(filepath.Join(t.TempDir(), dirName), Config{ID: "abcdefghij"}, self)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := Make(filepath.Join(t.TempDir(), dirName), Config{ID: "bbbbbbbbbb"}, self)
	if err != nil {
		t.Fatal(err)
	}
	got := Environ([]string{"A=b", "PATH=" + outer.Bin() + ":/usr/bin", EnvDir + "=" + string(outer)}, inner)
	if want := []string{"A=b", EnvDir + "=" + string(inner), "PATH=" + inner.Bin() + ":/usr/bin"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Environ(got, ""); !slices.Equal(got, []string{"A=b", "PATH=/usr/bin"}) {
		t.Errorf("without shims: %q", got)
	}
	if got := Environ([]string{"A=b"}, ""); !slices.Equal(got, []string{"A=b"}) {
		t.Errorf("an environment without PATH became %q", got)
	}
}

// What has a bin beside a session.json, and is of somebody else, stays in the PATH.
func TestIsBin(t *testing.T) {
	for path, want := range map[string]bool{"shims/abcdefghij": true, "shims/": false, "shims/ABC": false, "game/abcdefghij": false} {
		name, id, _ := strings.Cut(path, "/")
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeJSON(filepath.Join(dir, configName), Config{ID: id}); err != nil {
			t.Fatal(err)
		}
		if got := isBin(filepath.Join(dir, "bin")); got != want {
			t.Errorf("the bin of %s is one of shims: %t", path, got)
		}
	}
}

// Nothing of a command line is lost or changes its order, whatever it is.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"run x", "-H\x00unix:///x\x00run\x00x", "container\x00run", "compose\x00-f\x00a\x00up", "--host=\x00-DHx\x00pod\x00create", "-\x00--\x00run"} {
		f.Add("docker", s)
		f.Add("podman", s)
	}
	f.Fuzz(func(t *testing.T, tool, line string) {
		args := strings.Split(line, "\x00")
		whole := slices.Clone(args)
		c := parse(tool, args)
		if !slices.Equal(args, whole) {
			t.Fatalf("%q became %q", whole, args)
		}
		if c.what == container || c.what == pod {
			got := c.with(args, "ADD")
			i := slices.Index(got, "ADD")
			if i < 1 || len(got) != len(args)+1 || !slices.Equal(slices.Delete(slices.Clone(got), c.at, c.at+1), args) {
				t.Fatalf("%q became %q", args, got)
			}
			switch got[c.at-1] {
			case "run", "create":
			default:
				t.Fatalf("%q: added behind %q", got, got[c.at-1])
			}
		}
		k := parseCompose(args)
		if k.makes && !slices.Equal(k.with(args), args) {
			t.Fatalf("%q became %q", args, k.with(args))
		}
		parseUnit(args)
		queues(args)
		installs(args)
	})
}

// What a call has put into the crontab is known, also of one that was killed over it:
// then it is likely alone, and said so.
func TestCrontabRecords(t *testing.T) {
	d := Dir(t.TempDir())
	if err := os.Mkdir(d.path("crontab"), 0o700); err != nil {
		t.Fatal(err)
	}
	const mine, a, b = "1 1 * * * mine\n", "5 5 * * * a\n", "7 7 * * * b\n"
	for name, record := range map[string]table{
		"000000.json": {Before: mine, After: mine + a, Done: true, Proven: true},
		"000001.json": {Before: mine + a},
	} {
		if err := writeJSON(d.path("crontab", name), record); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.path("crontab", "000002.json"), nil, 0o600); err != nil { // killed before it did anything
		t.Fatal(err)
	}
	own, unsure := d.Crontab(mine + a + b)
	if !slices.Equal(own, []string{"5 5 * * * a"}) || !slices.Equal(unsure, []string{"7 7 * * * b"}) {
		t.Errorf("own %q, unsure %q", own, unsure)
	}
	if own, unsure := d.Crontab(mine); own != nil || len(unsure) > 0 {
		t.Errorf("of what is not there any more: own %q, unsure %q", own, unsure)
	}
}

func TestNoTable(t *testing.T) {
	for text, want := range map[string]bool{
		"no crontab for root":                                    true, // Debian, cronie
		"crontab: no crontab for me":                             true, // macOS
		"crontab: can't open 'root': No such file or directory":  true, // busybox
		"crontab: can't open 'root': Permission denied":          false,
		"You (me) are not allowed to use this program (crontab)": false,
		"": false,
	} {
		if noTable(text) != want {
			t.Errorf("%q says that there is no table: %t", text, !want)
		}
	}
}

// A full disk or a lost directory: the call is refused, as nothing would find what it starts.
func TestNotNoted(t *testing.T) {
	s := shim{name: "docker", path: "/nonexistent/docker", dir: Dir(t.TempDir()), c: Config{ID: "abcdefghij", Cookie: "c"}}
	if _, code := s.rewrite([]string{"run", "bb"}); code != exitOwnFailure { // there is no directory for engines
		t.Errorf("exit code %d", code)
	}
	if args, code := s.rewrite([]string{"ps"}); code >= 0 || !slices.Equal(args, []string{"ps"}) {
		t.Errorf("docker ps became %q, %d", args, code)
	}
}

// TestBlind: a call whose container no file will name is noted as that, before it is made.
func TestBlind(t *testing.T) {
	for line, want := range map[string]bool{"docker run bb": false, "docker create --name x bb": false, "docker run --cidfile own bb": true, "podman pod create": true} {
		d := Dir(t.TempDir())
		for _, sub := range []string{"ids", "engines"} {
			if err := os.Mkdir(d.path(sub), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		argv := strings.Fields(line)
		s := shim{name: argv[0], path: "/nonexistent/" + argv[0], dir: d, c: Config{ID: "abcdefghij", Cookie: "c"}}
		if _, code := s.rewrite(argv[1:]); code >= 0 {
			t.Fatalf("%s: exit code %d", line, code)
		}
		all := d.Engines()
		if len(all) != 1 || d.Blind(&all[0]) != want {
			t.Errorf("%s: engines %+v, want blind %t", line, all, want)
		}
	}
}

// TestKeeps: what is to outlive the session is nobody's.
func TestKeeps(t *testing.T) {
	for line, want := range map[string]bool{
		"docker run -e SESSIONBOX_KEEP=1 bb": false, "systemd-run sleep 9": false, "systemd-run -E SESSIONBOX_KEEP=1 sleep 9": true,
		"systemd-run --setenv=SESSIONBOX_KEEP=1 -E SESSIONBOX_KEEP=0 sleep 9": false, "systemd-run sleep -E SESSIONBOX_KEEP=1": false,
		"systemd-run -p Environment=SESSIONBOX_KEEP=1 sleep 9": true, "systemd-run -p Environment=A=SESSIONBOX_KEEP=1 sleep 9": false,
	} {
		argv := strings.Fields(line)
		if keeps(argv[0], argv[1:]) != want {
			t.Errorf("%s: want %t", line, want)
		}
	}
	t.Setenv("SESSIONBOX_KEEP", "1")
	if !keeps("docker", []string{"run", "bb"}) {
		t.Error("called by who wants to be kept")
	}
}

// In a strict session nothing can be noted, and what is reached is elsewhere.
func TestStrict(t *testing.T) {
	for _, name := range []string{"docker", "docker-compose", "systemd-run"} {
		s := shim{name: name, path: "/nonexistent/" + name, dir: "/nonexistent", c: Config{ID: "abcdefghij", Cookie: "c", Strict: true}}
		if args, code := s.rewrite([]string{"run", "bb"}); code >= 0 || !slices.Equal(args, []string{"run", "bb"}) {
			t.Errorf("%s became %q, %d", name, args, code)
		}
	}
}

func TestContainerID(t *testing.T) {
	d := Dir(t.TempDir())
	for _, sub := range []string{"ids", "engines"} {
		if err := os.Mkdir(d.path(sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	e := engines.Engine{Tool: "docker", Options: []string{"--host=unix:///b.sock"}, Env: map[string]string{"HOME": "/h"}}
	if err := writeJSON(d.engineFile(&e), called{Engine: e}); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{d.idFile("00ff.mac", &e): "container\n", d.idFile("00fe.mac", &e): "", d.path("ids", "00fd.strange"): "x"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for nonce, want := range map[string]string{"00ff": "container", "00fe": "", "00fd": "x", "0": "", "": "", "*": "", "../session.json": ""} {
		if got := d.ContainerID(nonce); got != want {
			t.Errorf("the container of %q is %q", nonce, got)
		}
	}
	if made := d.Made(); len(made) != 1 || made[0].ID != "container" || made[0].Engine.String() != e.String() {
		t.Errorf("made: %+v", made)
	}
}

func TestGivesKeep(t *testing.T) {
	for words, want := range map[string]bool{
		`SESSIONBOX_KEEP=1`: true, `A=b "SESSIONBOX_KEEP=1"`: true, `SESSIONBOX_KEEP="1"`: true, `'SESSIONBOX_KEEP=1' B=c`: true, `SESSIONBOX_KEEP=\1`: true,
		``: false, `SESSIONBOX_KEEP=10`: false, `"A=b SESSIONBOX_KEEP=1"`: false, `X_SESSIONBOX_KEEP=1`: false, `"A=\" SESSIONBOX_KEEP=1"`: false, `"SESSIONBOX_KEEP=1`: false,
	} {
		if got := GivesKeep(words); got != want {
			t.Errorf("%s: %t, want %t", words, got, want)
		}
	}
}
