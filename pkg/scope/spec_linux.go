package scope

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sessionbox/sessionbox/pkg/cgroup"
)

// Spec says what box to make.
type Spec struct {
	// ID of the session, [a-z0-9]{10}: a "-" would nest.
	ID string
	// Parents are the ids of the sessions around it, outermost first.
	Parents []string
	// Description is what systemctl shows; the session's name belongs here.
	Description string
	// Limits are the ceilings of the session's slice.
	Limits *specs.LinuxResources
	// Aggregate are the ceilings of sessionbox.slice, nil to leave them alone.
	Aggregate *specs.LinuxResources
	// Anchor is the argv of the anchor process; Anchor[0] is absolute. It must
	// call [Settle] and then [NotifyReady].
	Anchor []string
	// AnchorEnv is added to the environment of the anchor process.
	AnchorEnv []string
	// Helper is a program that calls park.Main, for the waiting stub.
	Helper string
}

func (s Spec) check() error {
	var bad []string
	for _, id := range append(append([]string{}, s.Parents...), s.ID) {
		if ids, ok := cgroup.SliceIDs(cgroup.SliceName(nil, id)); !ok || len(ids) != 1 {
			bad = append(bad, fmt.Sprintf("id %q is not of the form [a-z0-9]{10}", id))
		}
	}
	if len(s.Anchor) == 0 || !filepath.IsAbs(s.Anchor[0]) {
		bad = append(bad, "the anchor's program has no absolute path")
	}
	if len(s.SliceUnit()) > maxUnitName {
		bad = append(bad, fmt.Sprintf("%d sessions inside each other are too many", len(s.Parents)+1))
	}
	if bad != nil {
		return errors.New("bad box: " + strings.Join(bad, "; "))
	}
	return nil
}

// maxUnitName is systemd's UNIT_NAME_MAX less the final NUL.
const maxUnitName = 255

// SliceUnit is the name of the session's slice. systemd nests by name: a-b.slice
// lies in a.slice, so the parents are part of it.
func (s Spec) SliceUnit() string { return cgroup.SliceName(s.Parents, s.ID) }

func (s Spec) parentUnit() string {
	n := len(s.Parents)
	if n == 0 {
		return cgroup.Base
	}
	return cgroup.SliceName(s.Parents[:n-1], s.Parents[n-1])
}

// serviceUnit and scopeUnit are the two names an anchor may have: services and
// scopes do not nest by name, Slice= says where they lie.
func (s Spec) serviceUnit() string { return "sessionbox-" + s.ID + "-main.service" }
func (s Spec) scopeUnit() string   { return "sessionbox-" + s.ID + "-main.scope" }
