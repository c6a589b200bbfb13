//go:build !linux

package session

import (
	"context"
	"os/exec"

	"github.com/sessionbox/sessionbox/pkg/internal/oci"
	"github.com/sessionbox/sessionbox/pkg/store"
)

func (s *Session) cgroupsPath(bool) (string, error) { return "", notHere("a container") }

func (s *Session) startContainer(context.Context, *oci.Bundle) error { return notHere("a container") }

func (m *Manager) containerReady(*store.Session) error { return nil }

func (m *Manager) containerInfo(*store.Session) *ContainerInfo { return nil }

func (s *Session) fillCommand(*exec.Cmd) error { return notHere("a container") }

func (s *Session) startInside(context.Context, *exec.Cmd, string) error {
	return notHere("a container")
}

func (m *Manager) deleteContainer(context.Context, *store.Session, Box) (failed, left error) {
	return nil, nil
}

func (s *Session) leafName(leaf string) string { return leaf }
