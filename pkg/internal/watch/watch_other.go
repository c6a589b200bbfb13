//go:build !linux

package watch

import "context"

// Watcher waits for changes in a directory, here by waiting.
type Watcher struct{}

// New begins to watch a directory, which need not exist yet.
func New(string) *Watcher { return &Watcher{} }

// Wait returns when something may have changed, or ctx has ended.
func (*Watcher) Wait(ctx context.Context) { pause(ctx, pollInterval) }

// Close ends the watch.
func (*Watcher) Close() {}
