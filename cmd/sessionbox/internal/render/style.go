package render

import "time"

// Style is how a text looks.
type Style struct {
	// Width is the number of columns, 0 for a reader that is no terminal:
	// nothing is cut then.
	Width int
	Color bool
	// Whole shows everything, however long.
	Whole bool
	Now   time.Time
}

// paint is a colour of a text.
type paint string

const (
	plain  paint = ""
	bold   paint = "1"
	dim    paint = "2"
	red    paint = "1;31"
	yellow paint = "1;33"
	green  paint = "32"
	cyan   paint = "36"
)

func (s Style) paint(p paint, text string) string {
	if !s.Color || p == plain || text == "" {
		return text
	}
	return "\x1b[" + string(p) + "m" + text + "\x1b[0m"
}

// narrow says that there is no room for what can be left out.
func (s Style) narrow() bool { return s.cut() && s.Width < 100 }

// cut says that lines are cut to the width.
func (s Style) cut() bool { return s.Width > 0 && !s.Whole }
