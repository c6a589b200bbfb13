// Package shim stands before the commands that have somebody else start something:
// docker, podman, nerdctl, docker-compose, systemd-run, at, batch and crontab. Each
// shim is a link to our own program, in a directory that is first in the PATH of a
// session; it adds to the command line what lets the session's close find, or hold,
// what is started, and executes the real command in its own place.
//
// What it guarantees: a command line that it does not understand to the end is
// executed as it is; what the user says himself comes later on the command line and
// wins; it never executes itself, nor the shim of another session; where there is no
// real command it says so and exits with 127, as a shell would.
//
// What it does not: bind anybody. Who calls /usr/bin/docker by its whole name, or asks
// the engine's socket himself, goes past it.
//
// The rewriting is pure: options.go, containers.go, compose.go and units.go look at
// arguments alone. crontab.go runs the real command and says what it has changed; main.go
// does the rest.
package shim
