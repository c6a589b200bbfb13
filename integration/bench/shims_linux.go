package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sessionbox/sessionbox/pkg/session"
)

// shimRows measure what a shim costs: the start of our program before that of the real
// one. The least real one is an empty program by the name of docker.
func (b *bench) shimRows(ctx context.Context) ([]row, error) {
	dir, err := os.MkdirTemp(memoryDir(), "sbxbench-shim-")
	if err != nil {
		return nil, err
	}
	b.shims = dir
	least := filepath.Join(dir, "docker")
	if err := os.Symlink(b.empty, least); err != nil {
		return nil, err
	}
	before := os.Getenv("PATH")
	os.Setenv("PATH", dir+":"+before)
	s, err := b.m.Open(ctx, session.OpenOptions{Name: "bench-shims", Kind: b.kind, Shims: true})
	if err != nil {
		return nil, err
	}
	defer s.Release()
	shim := filepath.Join(os.Getenv("SESSIONBOX_STATE_DIR"), "sessions", s.ID(), "shims", "bin", "docker")
	env := append(os.Environ(), "PATH="+filepath.Dir(shim)+":"+dir+":"+before, "DOCKER_HOST=unix://"+dir+"/nobody.sock")
	rows := []row{
		{"docker run …, by a shim", "an empty Go program by that name", 0, b.n, commandIn(env, shim, "run", "-d", "bb"), commandIn(env, least, "run", "-d", "bb")},
	}
	for _, tool := range []string{"docker", "podman"} {
		real, err := lookIn(before, tool)
		if err != nil || exec.Command(real, "--version").Run() != nil {
			fmt.Printf("%-44s not measured: %s is not installed\n", tool+" --version, by a shim", tool)
			continue
		}
		link := filepath.Join(filepath.Dir(shim), tool)
		past := append(os.Environ(), "PATH="+filepath.Dir(shim)+":"+before)
		rows = append(rows, row{tool + " --version, by a shim", tool + " --version", 2, b.n, commandIn(past, link, "--version"), commandIn(past, real, "--version")})
	}
	os.Setenv("PATH", before)
	return rows, nil
}

// endShims takes away what shimRows has made.
func (b *bench) endShims(ctx context.Context) error {
	_, err := b.m.Close(ctx, "bench-shims", session.CloseOptions{Now: true})
	return errors.Join(err, os.RemoveAll(b.shims))
}

func lookIn(path, tool string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if p, err := exec.LookPath(filepath.Join(dir, tool)); err == nil {
			return p, nil
		}
	}
	return "", exec.ErrNotFound
}

// commandIn is command in an environment.
func commandIn(env []string, argv ...string) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = env
		began := time.Now()
		err := cmd.Run()
		return time.Since(began), err
	}
}
