package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/sessionbox/sessionbox/pkg/session"
	"github.com/spf13/cobra"
)

// version is set by the linker for builds from a tarball; else the version is
// that of the module.
var version string

// Version says which program this is.
type Version struct {
	Schema   int    `json:"schema"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of sessionbox.

Exit status:
  0  always`,
		Example:           `  sessionbox version --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	v := currentVersion()
	if a.json {
		return a.printJSON(v)
	}
	rev := v.Revision
	if len(rev) > 12 {
		rev = rev[:12]
	}
	if rev != "" && v.Modified {
		rev += "+changes"
	}
	if rev != "" {
		rev = " (" + rev + ")"
	}
	_, err := fmt.Fprintf(a.stdout, "sessionbox %s%s %s %s\n", v.Version, rev, v.Go, v.Platform)
	return err
}

func currentVersion() Version {
	v := Version{Schema: session.Schema, Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	return v
}
