package shim

import (
	"os/user"
	"strings"
)

// systemdRun are the options of systemd-run (as of 258) up to the command.
func systemdRun() options {
	return options{
		flags: []string{"help", "h", "version", "user", "system", "scope", "remain-after-exit", "r", "send-sighup", "no-block", "wait", "quiet", "q",
			"pipe", "P", "pty", "t", "pty-late", "T", "shell", "S", "same-dir", "d", "collect", "G", "slice-inherit", "no-ask-password", "ignore-failure", "verbose", "v"},
		values: []string{"host", "H", "machine", "M", "capsule", "C", "unit", "u", "property", "p", "description", "slice", "service-type", "uid", "gid", "nice",
			"working-directory", "setenv", "E", "on-active", "on-boot", "on-startup", "on-unit-active", "on-unit-inactive", "on-calendar", "timer-property",
			"path-property", "socket-property", "background", "expand-environment", "json", "job-mode", "area", "root-directory", "chdir"},
	}
}

// unitCall is a command line of systemd-run, taken apart.
type unitCall struct {
	understood bool
	user       bool // --user
	elsewhere  bool // on another machine, or nothing that is started
	slice      bool // the user says where
	scope      bool // which runs as a child of systemd-run, with our own environment
	keeps      bool // it is to outlive the session
}

func parseUnit(args []string) unitCall {
	var c unitCall
	n, ok := systemdRun().skip(args, func(name, value string) {
		switch name {
		case "user":
			c.user = true
		case "system":
			c.user = false
		case "host", "H", "machine", "M", "capsule", "C", "help", "h", "version":
			c.elsewhere = true
		case "slice", "slice-inherit":
			c.slice = true
		case "scope":
			c.scope = true
		case "property", "p":
			c.slice = c.slice || strings.HasPrefix(value, "Slice=")
			if words, ok := strings.CutPrefix(value, "Environment="); ok && GivesKeep(words) {
				c.keeps = true
			}
		case "setenv", "E":
			if strings.HasPrefix(value, envKeep+"=") {
				c.keeps = value == envKeep+"=1" // the last one counts
			}
		}
	})
	// A "--" ends the options, which is no trouble: the command follows.
	c.understood = ok || n < len(args) && args[n] == "--"
	return c
}

// GivesKeep says whether one of the words of an Environment= of systemd asks for what is started
// to outlive its session. A word may be in quotes, as a whole or in part, and \ quotes one character.
func GivesKeep(words string) bool {
	var word strings.Builder
	var quote rune
	escaped := false
	for _, r := range words + " " {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && (r == ' ' || r == '\t' || r == '\n'):
			if word.String() == envKeep+"=1" {
				return true
			}
			word.Reset()
		default:
			word.WriteRune(r)
		}
	}
	return false
}

// queues says whether a command line of at or batch queues a job, rather than asking
// for some or removing one.
func queues(args []string) bool {
	for _, a := range args {
		if a == "--" {
			return true
		}
		if len(a) > 1 && a[0] == '-' && strings.ContainsAny(a[1:], "lrdcV") && !strings.HasPrefix(a, "-q") && !strings.HasPrefix(a, "-f") {
			return false
		}
	}
	return true
}

// installs says whether a command line of crontab changes the table.
func installs(args []string) bool {
	for _, a := range args {
		if a == "-l" || a == "-T" || a == "-h" || a == "--help" || a == "-V" {
			return false
		}
	}
	return true
}

// ownTable gives the arguments of crontab without the name of the user, and says whether
// it is about the table of that user.
func ownTable(args []string, user string) (rest []string, own bool) {
	for i := 0; i < len(args); i++ {
		name, found := strings.CutPrefix(args[i], "-u")
		switch {
		case !found || strings.HasPrefix(args[i], "--"):
			rest = append(rest, args[i])
			continue
		case name == "" && i+1 < len(args):
			i++
			name = args[i]
		}
		if name != user || name == "" {
			return args, false
		}
	}
	return rest, true
}

// userName is who we are, as crontab is told.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// Refuse says why a command is not to be used in a strict session, "" if it may be: what
// at and cron start later, no box holds.
func Refuse(tool string, args []string, strict bool) string {
	if !strict {
		return ""
	}
	switch {
	case (tool == "at" || tool == "batch") && queues(args), tool == "crontab" && installs(args):
		return tool + " is refused in this session: it would start something when the session is gone (it was opened with --strict)"
	}
	return ""
}
