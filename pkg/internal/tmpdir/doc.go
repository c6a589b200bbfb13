// Package tmpdir makes and removes the directories that sessions have for their
// temporary files: <base>/sessionbox-<uid>/<id>, base being TMPDIR or /tmp. Builds
// fill them, so that they are not in the state directory, which is a small tmpfs.
//
// What it guarantees:
//
//   - The directory in between is the user's own and nobody else can enter it. In a
//     /tmp that all may write to another user may have made it before: it is not used
//     then, nor is a symbolic link followed; the next of a few names is tried.
//   - A removal stays inside. No link is followed; what is mounted inside, also a bind
//     mount of the same file system, is neither emptied nor removed (on Linux; kernels
//     before 5.8 cannot tell the latter). Whoever swaps a directory for a link while it
//     is being removed loses the link.
//   - It can be killed at any instruction, done by two at once, and repeated. Depth and
//     number of files cost neither descriptors nor stack.
//
// What it does not: it removes nothing that the user may not remove, and takes no flag
// off a file (chattr +i). What is left is named.
package tmpdir
