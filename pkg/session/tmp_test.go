package session

import (
	"slices"
	"testing"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// Which TMPDIR a command gets depends on whose the caller's is.
func TestTmpEnviron(t *testing.T) {
	const own, other = "/tmp/sessionbox-0/mine", "/tmp/sessionbox-0/other"
	for _, tt := range []struct {
		name   string
		rec    store.Session
		caller string   // TMPDIR of the caller
		env    []string // of the command
		want   []string
	}{
		{"none", store.Session{}, "", []string{"A=1"}, []string{"A=1"}},
		{"beside the caller's", store.Session{TmpDir: own}, "/var/tmp", []string{"TMPDIR=/var/tmp"}, []string{"TMPDIR=/var/tmp", EnvTmpDir + "=" + own}},
		{"another session's is not ours", store.Session{}, "", []string{EnvTmpDir + "=" + other}, nil},
		{"private", store.Session{TmpDir: own, PrivateTmp: true}, "/var/tmp", []string{"TMPDIR=/var/tmp"}, []string{EnvTmpDir + "=" + own, "TMPDIR=" + own}},
		{"private, none before", store.Session{TmpDir: own, PrivateTmp: true}, "/var/tmp", nil, []string{EnvTmpDir + "=" + own, "TMPDIR=" + own}},
		{"private, one chosen", store.Session{TmpDir: own, PrivateTmp: true}, "/var/tmp", []string{"TMPDIR=/srv"}, []string{"TMPDIR=/srv", EnvTmpDir + "=" + own}},
		{"private, twice", store.Session{TmpDir: own, PrivateTmp: true}, "", []string{EnvTmpDir + "=" + own, "TMPDIR=" + own}, []string{EnvTmpDir + "=" + own, "TMPDIR=" + own}},
		{"from inside another", store.Session{TmpDir: own}, other, []string{EnvTmpDir + "=" + other, "TMPDIR=" + other}, []string{EnvTmpDir + "=" + own}},
		{"nested in it", store.Session{TmpDir: own, Parent: "other"}, other, []string{EnvTmpDir + "=" + other, "TMPDIR=" + other}, []string{"TMPDIR=" + other, EnvTmpDir + "=" + own}},
		{"nested and private", store.Session{TmpDir: own, Parent: "other", PrivateTmp: true}, other, []string{EnvTmpDir + "=" + other, "TMPDIR=" + other}, []string{EnvTmpDir + "=" + own, "TMPDIR=" + own}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TMPDIR", tt.caller)
			if got := tmpEnviron(&tt.rec, slices.Clone(tt.env)); !slices.Equal(got, tt.want) {
				t.Errorf("tmpEnviron(%q) = %q; want %q", tt.env, got, tt.want)
			}
		})
	}
}

// What is opened inside of a session has its directory beside, not in, that one's.
func TestTmpBase(t *testing.T) {
	t.Setenv("TMPDIR", "/srv")
	t.Setenv(EnvTmpDir, "/tmp/sessionbox-0/other")
	if got := tmpBase(); got != "/srv" {
		t.Errorf("tmpBase() = %q; want TMPDIR", got)
	}
	t.Setenv("TMPDIR", "/tmp/sessionbox-0/other")
	if got := tmpBase(); got != "/tmp" {
		t.Errorf("tmpBase() = %q; want that of the session around us", got)
	}
}
