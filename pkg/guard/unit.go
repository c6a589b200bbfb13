package guard

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// Unit is the service of an installed guard. Those that are started on demand have
// units of other names, so that both can be up for the moment in which the installed
// one takes over.
const (
	Unit  = "sessionbox-guard.service"
	Label = "dev.sessionbox.guard" // for launchd
)

// Service is what is installed.
type Service struct {
	Program string   // absolute path of sessionbox
	Metrics string   // as in Options
	Env     []string // NAME=VALUE
	System  bool     // for root's sessions, with the system
}

func (s Service) argv() []string {
	argv := []string{s.Program, "guard"}
	if s.Metrics != "" {
		argv = append(argv, "--metrics", s.Metrics)
	}
	return argv
}

// UnitFile is the unit file for systemd. Not started again are one that another guard
// keeps from running (7) and one whose command line or config is wrong (2).
func (s Service) UnitFile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by `sessionbox guard install`.\n[Unit]\nDescription=sessionbox guard\nDocumentation=man:sessionbox-guard(1)\n\n")
	fmt.Fprintf(&b, "[Service]\nType=notify\nExecStart=%s\n", unitWords(s.argv()))
	for _, e := range s.Env {
		fmt.Fprintf(&b, "Environment=%s\n", unitWord(e))
	}
	fmt.Fprintf(&b, "MemoryMin=%d\n", session.GuardMemoryMin)
	target := "default.target"
	if s.System {
		target = "multi-user.target"
		b.WriteString("OOMScoreAdjust=-500\n") // a user's manager may not, and would not start it
	}
	fmt.Fprintf(&b, "WorkingDirectory=/\nRestart=on-failure\nRestartSec=1\nRestartPreventExitStatus=2 7\nTimeoutStopSec=15\n\n[Install]\nWantedBy=%s\n", target)
	return b.String()
}

func unitWords(words []string) string {
	all := []string{unitWord(words[0])}
	for _, w := range words[1:] { // variables are put into arguments, not into the program's path
		all = append(all, unitWord(strings.ReplaceAll(w, "$", "$$")))
	}
	return strings.Join(all, " ")
}

// unitWord quotes a word of a unit file, which has specifiers everywhere.
func unitWord(w string) string {
	w = strings.NewReplacer("%", "%%", `\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(w)
	if w == "" || strings.ContainsAny(w, " '\";\\") {
		return `"` + w + `"`
	}
	return w
}

// Plist is the property list for launchd. What launchd starts is in its background
// band unless it says otherwise, with little of processor and disk: Interactive is as
// for what the user waits for.
func (s Service) Plist() string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
`)
	text := func(indent, s string) { fmt.Fprintf(&b, "%s<string>%s</string>\n", indent, escapeXML(s)) }
	key := func(k string) { fmt.Fprintf(&b, "\t<key>%s</key>\n", k) }
	key("Label")
	text("\t", Label)
	key("ProgramArguments")
	b.WriteString("\t<array>\n")
	for _, a := range s.argv() {
		text("\t\t", a)
	}
	b.WriteString("\t</array>\n")
	if len(s.Env) > 0 {
		key("EnvironmentVariables")
		b.WriteString("\t<dict>\n")
		for _, e := range s.Env {
			k, v, _ := strings.Cut(e, "=")
			fmt.Fprintf(&b, "\t\t<key>%s</key>\n", escapeXML(k))
			text("\t\t", v)
		}
		b.WriteString("\t</dict>\n")
	}
	key("RunAtLoad")
	b.WriteString("\t<true/>\n")
	key("KeepAlive") // as Restart=on-failure
	b.WriteString("\t<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>\n")
	key("WorkingDirectory")
	text("\t", "/")
	key("ProcessType")
	text("\t", "Interactive")
	key("ExitTimeOut")
	b.WriteString("\t<integer>15</integer>\n</dict>\n</plist>\n")
	return b.String()
}

func escapeXML(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s)) // writing to memory does not fail
	return b.String()
}

// UnitPath is where the unit file of a user or of the system is; config is
// XDG_CONFIG_HOME, may be empty.
func (s Service) UnitPath(home, config string) string {
	if s.System {
		return filepath.Join("/etc/systemd/system", Unit)
	}
	if !filepath.IsAbs(config) {
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "systemd", "user", Unit)
}

// PlistPath is where the property list of a user or of the system is.
func (s Service) PlistPath(home string) string {
	if s.System {
		return "/Library/LaunchDaemons/" + Label + ".plist"
	}
	return filepath.Join(home, "Library", "LaunchAgents", Label+".plist")
}
