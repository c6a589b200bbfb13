//go:build !linux

package session

import (
	"context"

	"github.com/sessionbox/sessionbox/pkg/store"
)

// unitsOf: there are no units here.
func (m *Manager) unitsOf(*store.Session) []UnitInfo { return nil }

type unitFile struct{}

func unitFiles() []unitFile { return nil }

func unitsAmong([]unitFile, *store.Session) []UnitInfo { return nil }

func (h *hired) endUnits(context.Context) {}

func (h *hired) leftUnits(context.Context) {}
