//go:build !linux

package session

import "context"

// Doctor says what this machine has of what sessionbox can use.
func (m *Manager) Doctor(context.Context) []Check {
	e := noBox().(*Error)
	return []Check{{Name: "box", Status: CheckMissing, Text: e.Text, Fix: e.Hint, Needed: true}}
}

// EndsWithLogin says how to have the session outlive the last login of its user.
func (s *Session) EndsWithLogin() string { return "" }
