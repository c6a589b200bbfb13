package hosts

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A Step is one thing that a guest does after its boot.
type Step struct {
	Name   string
	Route  Route
	Args   []string
	Env    []string
	Dir    string
	Reboot bool // instead of a command: reboot, and go on with the next step
}

// guestMark begins the lines by which the guest's script says where it is. The
// result of a step counts only with its end line: a guest that hangs, panics or is
// cut short must not pass for one that had nothing to say.
const guestMark = "@@sbxtest "

// guestScript is what the guest runs: every step in turn, its output and its exit
// code to the second serial line. The first one is the console, and a login prompt
// takes that away in mid-sentence.
func guestScript(steps []Step) string {
	var b strings.Builder
	b.WriteString(`exec </dev/null >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 raw -echo
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
cd ` + PayloadDir + `
step=0
[ ! -f steps/next ] || step=$(cat steps/next)
`)
	fmt.Fprintf(&b, "echo '%sup '$(systemctl is-system-running --wait)\n", guestMark)
	for i, s := range steps {
		fmt.Fprintf(&b, "if [ $step -le %d ]; then\n", i)
		if s.Reboot {
			fmt.Fprintf(&b, "\techo %d >steps/next; sync; echo '%sreboot'\n", i+1, guestMark)
			b.WriteString("\tsystemctl reboot; exit\nfi\n")
			continue
		}
		fmt.Fprintf(&b, "\techo '%sbegin %d'\n\t", guestMark, i)
		for _, word := range s.Route.argv(guestStepScript(i)) {
			b.WriteString(quote(word) + " ")
		}
		fmt.Fprintf(&b, "\n\tprintf '\\n%send %d %%d\\n' $?\nfi\n", guestMark, i)
	}
	fmt.Fprintf(&b, "echo '%sdone'\nsync\nsleep 1\npoweroff -f\n", guestMark)
	return b.String()
}

func guestStepScript(i int) string { return fmt.Sprintf("%s/steps/%d", PayloadDir, i) }

// A StepResult is what came of a step.
type StepResult struct {
	Step   Step
	Ran    bool // its end line was seen
	Exit   int  // valid if Ran
	Output string
}

// A guestReader takes what the guest writes to the second serial line apart, and
// passes the output of commands on as it comes.
type guestReader struct {
	steps   []Step
	forward io.Writer

	results []StepResult
	output  bytes.Buffer // of the step at hand
	blank   int          // empty lines not passed on yet: the last one is the script's
	current int          // -1 between steps
	line    []byte       // not complete yet
	state   string       // what systemd said of the last boot
	done    bool
}

func newGuestReader(steps []Step, forward io.Writer) *guestReader {
	g := &guestReader{steps: steps, forward: forward, current: -1, results: make([]StepResult, len(steps))}
	for i, s := range steps {
		g.results[i].Step = s
	}
	return g
}

// Write takes more of what the guest wrote.
func (g *guestReader) Write(p []byte) (int, error) {
	g.line = append(g.line, p...)
	for {
		i := bytes.IndexByte(g.line, '\n')
		if i < 0 {
			return len(p), nil
		}
		g.take(string(g.line[:i]))
		g.line = g.line[i+1:]
	}
}

func (g *guestReader) take(line string) {
	mark, ok := strings.CutPrefix(strings.TrimSuffix(line, "\r"), guestMark)
	if !ok {
		g.output.WriteString(line + "\n")
		if g.current >= 0 {
			g.pass(line)
		}
		return
	}
	fields := strings.Fields(mark)
	switch {
	case len(fields) == 2 && fields[0] == "up":
		g.state = fields[1]
	case len(fields) == 1 && fields[0] == "done":
		g.done = true
	case len(fields) == 1 && fields[0] == "reboot":
		g.endReboot()
	case len(fields) == 2 && fields[0] == "begin":
		g.begin(fields[1])
	case len(fields) == 3 && fields[0] == "end":
		g.end(fields[1], fields[2])
	}
}

// pass passes a line of the step at hand on.
func (g *guestReader) pass(line string) {
	if line == "" {
		g.blank++
		return
	}
	fmt.Fprintln(g.forward, strings.Repeat("\n", g.blank)+line)
	g.blank = 0
}

func (g *guestReader) begin(number string) {
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= len(g.steps) {
		return
	}
	g.current, g.blank = i, 0
	g.output.Reset()
}

func (g *guestReader) end(number, code string) {
	i, err1 := strconv.Atoi(number)
	exit, err2 := strconv.Atoi(code)
	if err1 != nil || err2 != nil || i != g.current {
		return
	}
	r := &g.results[i]
	// The newline before the end line is the script's, not the command's.
	r.Ran, r.Exit, r.Output = true, exit, strings.TrimSuffix(g.output.String(), "\n")
	g.current = -1
	g.output.Reset()
}

// endReboot marks the first reboot that has not happened yet as done.
func (g *guestReader) endReboot() {
	for i := range g.results {
		if g.results[i].Step.Reboot && !g.results[i].Ran {
			g.results[i].Ran = true
			return
		}
	}
}

// finish says what is missing when the guest is gone.
func (g *guestReader) finish() error {
	if g.current >= 0 {
		g.results[g.current].Output = g.output.String() + string(g.line)
	}
	for _, r := range g.results {
		if !r.Ran {
			return fmt.Errorf("step %q did not finish in the guest", r.Step.Name)
		}
	}
	if !g.done {
		return fmt.Errorf("the guest ended without its last line")
	}
	return nil
}
