package hosts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Generation is a Debian release that tests run on, named as debootstrap names it.
type Generation string

// The three generations: systemd 247 with Linux 5.10 (no ExitType, no
// cgroup.kill, no memory.peak), 252 with 6.1, and 257 with 6.12.
const (
	Bullseye Generation = "bullseye"
	Bookworm Generation = "bookworm"
	Trixie   Generation = "trixie"
)

// Generations lists every generation that has a recipe, oldest first.
func Generations() []Generation {
	return []Generation{Bullseye, Bookworm, Trixie}
}

// PayloadDir is where a guest finds the files that were shipped to it, and where
// test programs are put in a namespaced host too, so that one path serves both.
const PayloadDir = "/opt/sbxtest"

// AgentUser is the unprivileged user of every root file system.
const AgentUser = "agent"

// AgentLogin is what ssh takes, inside a host and by root as well as by AgentUser
// itself, to log in as AgentUser without a question.
const AgentLogin = AgentUser + "@127.0.0.1"

// AgentUID is the uid of AgentUser.
const AgentUID = 1000

// A recipe is everything that decides what a root file system contains. It is
// plain data so that its hash can name the result: who changes a recipe gets a new
// root, who does not shares the one that is there.
type recipe struct {
	Suite    Generation
	Variant  string `json:",omitempty"` // part of the key: no variant prunes another's root
	Packages []string
	Commands [][]string // run in the root once the packages are in
	Files    []recipeFile
	Links    map[string]string // path in the root to what it points at
}

type recipeFile struct {
	Path string
	Mode uint32
	Body string
}

// guestUnit starts what a guest was booted for. It is inert where there is no
// second disk. Type=simple, so that the system counts as running meanwhile: a
// oneshot would keep it "starting" until the tests are over.
const guestUnit = `[Unit]
Description=Commands shipped on the second disk
ConditionPathExists=/dev/vdb
After=multi-user.target

[Service]
Type=simple
ExecStartPre=/bin/mkdir -p ` + PayloadDir + `
ExecStartPre=/bin/mount /dev/vdb ` + PayloadDir + `
ExecStart=/bin/sh ` + PayloadDir + `/` + guestScriptName + `
TasksMax=infinity
`

// guestScriptName is the script on the payload disk that guestUnit runs.
const guestScriptName = "guest.sh"

// A Variant is a root file system with something more in it, kept beside the plain
// one of its generation.
type Variant struct {
	Name     string // [a-z]+, names it in the cache
	Packages []string
	Commands [][]string // run in the root once everything else is in
}

// with returns the recipe of a variant. The packages are installed along with the
// others.
func (r recipe) with(v Variant) (recipe, error) {
	if v.Name == "" || strings.Trim(v.Name, "abcdefghijklmnopqrstuvwxyz") != "" {
		return recipe{}, fmt.Errorf("variant %q of %s: want a name of small letters", v.Name, r.Suite)
	}
	r.Variant = v.Name
	r.Packages = append(slices.Clip(r.Packages), v.Packages...)
	r.Commands = append(slices.Clip(r.Commands), v.Commands...)
	return r, nil
}

// recipe returns the recipe of a generation.
func (g Generation) recipe() (recipe, error) {
	packages := []string{
		"systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "udev",
		"linux-image-cloud-amd64", "procps", "psmisc", "sudo", "kmod", "iproute2",
		"openssh-server", "openssh-client", "at", "cron", "tmux", "screen",
	}
	switch g {
	case Bullseye, Trixie:
	case Bookworm:
		// The generation of the namespaced host, where agents' own runtime is wanted.
		packages = append(packages, "nodejs")
	default:
		return recipe{}, fmt.Errorf("no recipe for generation %q", g)
	}

	home := "/home/" + AgentUser
	r := recipe{
		Suite:    g,
		Packages: packages,
		Commands: [][]string{
			{"useradd", "--create-home", "--uid", fmt.Sprint(AgentUID), "--shell", "/bin/bash", AgentUser},
			{"ssh-keygen", "-A"},
			{"install", "-d", "-m", "700", "/root/.ssh"},
			{"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "sbxtest", "-f", "/root/.ssh/id_ed25519"},
			{"install", "-d", "-m", "700", "-o", AgentUser, "-g", AgentUser, home + "/.ssh"},
			{"install", "-m", "600", "-o", AgentUser, "-g", AgentUser, "/root/.ssh/id_ed25519", home + "/.ssh/id_ed25519"},
			{"install", "-m", "600", "-o", AgentUser, "-g", AgentUser, "/root/.ssh/id_ed25519.pub", home + "/.ssh/authorized_keys"},
		},
		Files: []recipeFile{
			// debootstrap copies these two from the machine it runs on.
			{"/etc/hostname", 0o644, "sbxtest\n"},
			{"/etc/resolv.conf", 0o644, ""},
			{"/etc/hosts", 0o644, "127.0.0.1 localhost sbxtest\n"},
			// Logins from the inside ask nobody, whoever makes them.
			{"/etc/ssh/ssh_config.d/sbxtest.conf", 0o644, "Host 127.0.0.1 localhost\n\tBatchMode yes\n\tStrictHostKeyChecking no\n\tUserKnownHostsFile /dev/null\n\tLogLevel ERROR\n"},
			{"/etc/sudoers.d/" + AgentUser, 0o440, AgentUser + " ALL=(ALL:ALL) NOPASSWD: ALL\n"},
			{"/etc/systemd/system/sbxtest.service", 0o644, guestUnit},
		},
		Links: map[string]string{
			"/etc/systemd/system/multi-user.target.wants/sbxtest.service": "/etc/systemd/system/sbxtest.service",
		},
	}
	// Housekeeping that would start units of its own in the middle of a test.
	for _, unit := range []string{
		"apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
		"e2scrub_reap.service", "fstrim.timer", "systemd-pstore.service", "man-db.timer", "logrotate.timer",
	} {
		r.Links["/etc/systemd/system/"+unit] = "/dev/null"
	}
	return r, nil
}

// key names the result of the recipe.
func (r recipe) key() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("hash the recipe of %s: %w", r.Suite, err)
	}
	sum := sha256.Sum256(text)
	return r.prefix() + hex.EncodeToString(sum[:6]), nil
}

// prefix begins the keys of all recipes of this kind, newer and older ones, and of no
// others.
func (r recipe) prefix() string {
	if r.Variant == "" {
		return string(r.Suite) + "-"
	}
	return string(r.Suite) + "+" + r.Variant + "-"
}
