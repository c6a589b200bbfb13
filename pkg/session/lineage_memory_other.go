//go:build !linux

package session

import (
	"errors"

	"github.com/sessionbox/sessionbox/pkg/memlimit"
)

// sumsWatched says whether a guard watches what the processes of a session hold together.
const sumsWatched = false

func (b *lineageBox) holding() ([]memlimit.Process, error) { return nil, errors.ErrUnsupported }
