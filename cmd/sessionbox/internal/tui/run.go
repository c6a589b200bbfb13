package tui

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// Options say how the screen is shown.
type Options struct {
	In, Out  io.ReadWriter
	Interval time.Duration // between two looks
	Color    bool
}

// ErrInterrupted says that Ctrl-C ended it.
var ErrInterrupted = errors.New("interrupted")

// Run shows the screen until it is left, with q: nil, with Ctrl-C:
// [ErrInterrupted], or by the end of the context: its error.
func Run(ctx context.Context, src Source, o Options) error {
	profile := colorprofile.ASCII
	if o.Color {
		profile = colorprofile.ANSI
	}
	end, err := tea.NewProgram(newModel(ctx, src, o.Interval, o.Color), tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out),
		tea.WithColorProfile(profile), tea.WithoutSignalHandler()).Run()
	if m, ok := end.(*model); ok && m.stopped {
		return ErrInterrupted
	}
	return err
}
