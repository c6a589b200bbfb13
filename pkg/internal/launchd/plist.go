package launchd

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Job is what launchd is to run.
type Job struct {
	Label   string
	Program []string // its path, which is absolute, and what follows it
	Log     string   // a file for what it says
}

// Plist describes the job to launchd, in the form of launchd.plist(5). It fails for strings that
// XML cannot carry: NUL and other control characters, and what is not UTF-8.
//
// It is started once and at once, and never again; its group is left alone when it ends, as ending
// is what the session sees to; ProcessType keeps it from being slowed down as work in the
// background is. The kinds of login are those that a job may be started from: an Aqua one has
// windows, ssh's has not.
func (j *Job) Plist() ([]byte, error) {
	if len(j.Program) == 0 || !strings.HasPrefix(j.Program[0], "/") {
		return nil, fmt.Errorf("the job %s has no absolute path: %q", j.Label, j.Program)
	}
	w := &writer{}
	w.raw(xml.Header + `<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">` + "\n<plist version=\"1.0\">\n<dict>\n")
	w.key("Label").text(j.Label)
	w.key("ProgramArguments").list(j.Program)
	w.key("RunAtLoad").raw("\t<true/>\n")
	w.key("KeepAlive").raw("\t<false/>\n")
	w.key("AbandonProcessGroup").raw("\t<true/>\n")
	w.key("ExitTimeOut").raw("\t<integer>5</integer>\n")
	w.key("ProcessType").text("Interactive")
	w.key("LimitLoadToSessionType").list([]string{"Aqua", "Background", "StandardIO"})
	w.key("Umask").raw("\t<integer>63</integer>\n")
	w.key("WorkingDirectory").text("/")
	w.key("StandardOutPath").text(j.Log)
	w.key("StandardErrorPath").text(j.Log)
	w.raw("</dict>\n</plist>\n")
	return w.b.Bytes(), w.err
}

type writer struct {
	b   bytes.Buffer
	err error
}

func (w *writer) raw(s string) { w.b.WriteString(s) }

func (w *writer) key(s string) *writer {
	w.raw("\t<key>" + s + "</key>\n")
	return w
}

func (w *writer) text(s string) {
	w.raw("\t")
	w.str(s)
}

func (w *writer) list(all []string) {
	w.raw("\t<array>\n")
	for _, s := range all {
		w.raw("\t\t")
		w.str(s)
	}
	w.raw("\t</array>\n")
}

func (w *writer) str(s string) {
	if w.err == nil && !carried(s) {
		w.err = fmt.Errorf("%q cannot be written into a property list", s)
	}
	w.raw("<string>")
	_ = xml.EscapeText(&w.b, []byte(s)) // a buffer takes everything
	w.raw("</string>\n")
}

// carried says whether XML 1.0 has a way to write all of a string; EscapeText puts U+FFFD for what
// it has none for, which would name another file.
func carried(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}
