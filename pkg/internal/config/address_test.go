package config

import (
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:9414": "tcp 127.0.0.1:9414", "9414": "tcp 127.0.0.1:9414", "localhost:0": "tcp 127.0.0.1:0",
		"127.8.8.8:1": "tcp 127.8.8.8:1", "[::1]:9414": "tcp [::1]:9414", "unix:/run/x.sock": "unix /run/x.sock",
		"unix:/run/../run/x": "unix /run/x",
	} {
		network, addr, err := ParseAddress(in)
		if got := network + " " + addr; err != nil || got != want {
			t.Errorf("ParseAddress(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	// Nothing that another machine could reach.
	for _, in := range []string{
		"", ":9414", "0.0.0.0:9414", "[::]:9414", "::1:9414x", "192.168.1.2:9414", "example.org:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http",
		"127.0.0.1:65536", "-1", "unix:", "unix:rel", "unix:/" + strings.Repeat("x", 100), "http://127.0.0.1:1", "[fe80::1%lo]:1", "/run/x.sock",
		"127.0.0.1:1:2",
	} {
		if network, addr, err := ParseAddress(in); err == nil {
			t.Errorf("ParseAddress(%q) = %s %s", in, network, addr)
		} else if !strings.Contains(err.Error(), `"`+in+`"`) {
			t.Errorf("ParseAddress(%q): %v does not quote it", in, err)
		}
	}
}

func TestLoadGuard(t *testing.T) {
	system := write(t, "system.toml", "[guard]\nmetrics = \"127.0.0.1:1\"\nstart = \"never\"\n")
	user := write(t, "user.toml", "guard.metrics = \"unix:/run/x\"\n")
	got, err := Load(system, user)
	if want := (Guard{Metrics: "unix:/run/x", Start: "never"}); err != nil || got.Guard != want {
		t.Errorf("%+v, %v; want %+v", got.Guard, err, want)
	}
	for text, want := range map[string]string{
		"[guard]\nmetrics = \"0.0.0.0:1\"\n": "loopback",
		"[guard]\nmetrics = true\n":          "line 2",
		"[guard]\nstart = \"maybe\"\n":       "auto or never",
		"[guard]\n\nmetric = 3\n":            `did you mean "guard.metrics"?`,
	} {
		if _, err := Load(write(t, "bad.toml", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
