package cli

import (
	"slices"

	"github.com/sessionbox/sessionbox/pkg/store"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func backends() []string { return []string{"auto", "systemd", "cgroup", "lineage"} }

func backendFlag(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "backend", "", "`KIND` of box: auto, systemd, cgroup or lineage (default auto)")
	mirror(f, "backend")
}

func completeBackend(cmd *cobra.Command) { completeWords(cmd, "backend", backends()...) }

// backendKind is what --backend asks for: "" leaves it to the config file, which auto does not.
func backendKind(flag string) (store.Kind, error) {
	if flag != "" && !slices.Contains(backends(), flag) {
		return "", usagef("--backend: no kind of box %q", flag).hintf("want auto, systemd, cgroup or lineage")
	}
	return store.Kind(flag), nil
}
