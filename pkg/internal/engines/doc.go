// Package engines asks container engines what they run for a session, and ends it:
// docker, podman and nerdctl.
//
// An engine that listens on a unix socket as docker does is asked there, with as much
// of HTTP as that takes: net/http would be a third of the program. Any other one, as
// rootless podman, which is no daemon, is asked by its own command.
//
// What it guarantees: everything it asks is bounded, an engine that is not there, that
// refuses or that hangs costs [AskTime], or 20 s where a command has to ask, and is an
// error, never a wait; a container is
// touched only by the whole id that the engine gave; one that has gone meanwhile is no
// error; what carries a session's label without the proof that the session made it
// (see [Proof]) is told apart.
//
// What it does not: keep somebody who can read the labels of an engine from copying
// them. Who may ask docker for that is root as good as.
package engines
