package launchd

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

const golden = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>dev.sessionbox.ab.0123</string>
	<key>ProgramArguments</key>
	<array>
		<string>/usr/local/bin/sessionbox</string>
		<string>__keeper</string>
		<string>{&#34;State&#34;:&#34;/Users/a &lt;b&gt; &amp; c/x&#34;}</string>
	</array>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<false/>
	<key>AbandonProcessGroup</key>
	<true/>
	<key>ExitTimeOut</key>
	<integer>5</integer>
	<key>ProcessType</key>
	<string>Interactive</string>
	<key>LimitLoadToSessionType</key>
	<array>
		<string>Aqua</string>
		<string>Background</string>
		<string>StandardIO</string>
	</array>
	<key>Umask</key>
	<integer>63</integer>
	<key>WorkingDirectory</key>
	<string>/</string>
	<key>StandardOutPath</key>
	<string>/tmp/log</string>
	<key>StandardErrorPath</key>
	<string>/tmp/log</string>
</dict>
</plist>
`

func TestPlist(t *testing.T) {
	j := Job{Label: "dev.sessionbox.ab.0123", Program: []string{"/usr/local/bin/sessionbox", "__keeper", `{"State":"/Users/a <b> & c/x"}`}, Log: "/tmp/log"}
	b, err := j.Plist()
	if err != nil || string(b) != golden {
		t.Errorf("%v\n%s", err, b)
	}
	for _, program := range [][]string{nil, {"sessionbox"}, {"/bin/a\x00b"}, {"/bin/a", "\x1b[31m"}, {"/bin/a", "\xff"}, {"/bin/a", "\uFFFE"}} {
		if b, err := (&Job{Label: "l", Program: program}).Plist(); err == nil {
			t.Errorf("%q: no error, %s", program, b)
		}
	}
}

// words reads a property list's strings as a parser does that knows nothing of how we wrote them.
func words(b []byte) (all []string, err error) {
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == "string" {
			var text string
			if err := d.DecodeElement(&text, &s); err != nil {
				return all, err
			}
			all = append(all, text)
		}
	}
}

// FuzzPlist: whatever is accepted is read back as it was, and nothing is added to it.
func FuzzPlist(f *testing.F) {
	for _, s := range []string{"plain", "</string><key>KeepAlive</key><true/>", "a&amp;b", "\t\n\r", "\x00", "é\u2028", "]]>", "<!--", "\xc3\x28"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		j := Job{Label: "l", Program: []string{"/bin/a", s, "end"}, Log: "/log"}
		b, err := j.Plist()
		if err != nil {
			return
		}
		got, err := words(b)
		want := []string{"l", "/bin/a", s, "end", "Interactive", "Aqua", "Background", "StandardIO", "/", "/log", "/log"}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %q", s, err, got)
		}
	})
}

// What a domain looks like to people, of macOS 15 and in other shapes.
func TestLabels(t *testing.T) {
	const prefix = "dev.sessionbox."
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"print", "gui/501 = {\n\ttype = login\n\tservices = {\n\t\t       0      - \tcom.apple.Finder\n\t\t     812      - \tdev.sessionbox.abcdefghij.0a1b\n\t\t       0     78 \tdev.sessionbox.zzzzzzzzzz.0a1b\n\t}\n}\n",
			[]string{"dev.sessionbox.abcdefghij.0a1b", "dev.sessionbox.zzzzzzzzzz.0a1b"}},
		{"list", "PID\tStatus\tLabel\n-\t0\tcom.apple.x\n812\t0\tdev.sessionbox.abcdefghij.0a1b\n", []string{"dev.sessionbox.abcdefghij.0a1b"}},
		{"quoted", "\t\"dev.sessionbox.abcdefghij.0a1b\" => enabled\n", []string{"dev.sessionbox.abcdefghij.0a1b"}},
		{"others", "xdev.sessionbox.abc dev.sessionbox. com.dev.sessionbox.abc\n", nil},
		{"nothing", "", nil},
	} {
		if got := labels(c.text, prefix); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// fake is a launchctl that answers by what it is asked.
type fake struct {
	codes map[string]int
	outs  map[string]string
	errs  map[string]error
	asked []string
}

func (f *fake) run(_ context.Context, args ...string) (string, int, error) {
	key := strings.Join(args, " ")
	f.asked = append(f.asked, key)
	if err := f.errs[key]; err != nil {
		return "", 0, err
	}
	code, ok := f.codes[key]
	if !ok {
		code = 113
	}
	return f.outs[key], code, nil
}

func TestStart(t *testing.T) {
	hung := errors.New("no answer")
	for _, c := range []struct {
		name   string
		fake   fake
		domain string
		err    string
	}{
		{"windows", fake{codes: map[string]int{"print gui/501": 0, "print user/501": 0, "bootstrap gui/501 p": 0}}, "gui/501", ""},
		{"refused with windows", fake{codes: map[string]int{"print gui/501": 0, "print user/501": 0, "bootstrap gui/501 p": 125, "bootstrap user/501 p": 0}}, "user/501", ""},
		{"ssh", fake{codes: map[string]int{"print user/501": 0, "bootstrap user/501 p": 0}}, "user/501", ""},
		{"refused", fake{codes: map[string]int{"print user/501": 0, "bootstrap user/501 p": 5}, outs: map[string]string{"bootstrap user/501 p": "Bootstrap failed: 5: Input/output error\n"}}, "",
			"start a job in user/501: Bootstrap failed: 5: Input/output error (launchctl ended with 5)"},
		{"nobody", fake{}, "", ErrNoDomain.Error()},
		{"hung", fake{errs: map[string]error{"print gui/501": hung, "print user/501": hung}}, "", "no answer\nno answer"},
	} {
		ctl := Control{UID: 501, Run: c.fake.run}
		domain, err := ctl.Start(t.Context(), "p")
		if domain != c.domain || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
			t.Errorf("%s: %q, %v", c.name, domain, err)
		}
	}
}

func TestEnd(t *testing.T) {
	for _, c := range []struct {
		name string
		fake fake
		want []string // what is asked
		ok   bool
	}{
		{"not there", fake{}, []string{"print gui/501/l", "print user/501/l"}, true},
		{"there", fake{codes: map[string]int{"print gui/501/l": 0, "bootout gui/501/l": 0}}, []string{"print gui/501/l", "bootout gui/501/l", "print user/501/l"}, true},
		{"it stays", fake{codes: map[string]int{"print user/501/l": 0, "bootout user/501/l": 36}}, []string{"print gui/501/l", "print user/501/l", "bootout user/501/l", "print user/501/l"}, false},
		{"hung", fake{codes: map[string]int{"print user/501/l": 0}, errs: map[string]error{"bootout user/501/l": context.DeadlineExceeded}}, []string{"print gui/501/l", "print user/501/l", "bootout user/501/l"}, false},
	} {
		ctl := Control{UID: 501, Run: c.fake.run}
		err := ctl.End(t.Context(), "l")
		if (err == nil) != c.ok || !slices.Equal(c.fake.asked, c.want) {
			t.Errorf("%s: %v, asked %q", c.name, err, c.fake.asked)
		}
	}
}

func TestManager(t *testing.T) {
	for _, c := range []struct {
		out  string
		code int
		want string
	}{{"Aqua\n", 0, "Aqua"}, {"Background", 0, "Background"}, {"", 0, ""}, {"Not privileged\n", 1, ""}} {
		f := fake{codes: map[string]int{"managername": c.code}, outs: map[string]string{"managername": c.out}}
		ctl := Control{Run: f.run}
		if got, err := ctl.Manager(t.Context()); got != c.want || (err == nil) != (c.code == 0) {
			t.Errorf("%q: %q, %v", c.out, got, err)
		}
	}
}
