package session

import (
	"time"

	"github.com/sessionbox/sessionbox/pkg/internal/config"
	"github.com/sessionbox/sessionbox/pkg/internal/proc"
)

// Survivor is a process that outlived SIGKILL, and why.
type Survivor = proc.Survivor

// SurvivorsError is in the chain of an error of kind [ErrSurvivors].
type SurvivorsError = proc.SurvivorsError

// ProcessID is the identity of a process: a pid alone is reused.
type ProcessID = proc.ID

// ParseDuration reads a time span as people type it and as the config file has
// it: a bare number is seconds, otherwise as [time.ParseDuration], with days
// ("2d") in front if wanted. Negative ones are errors, and those of more than a century.
func ParseDuration(text string) (time.Duration, error) { return config.ParseDuration(text) }
